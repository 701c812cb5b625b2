"""What a hook is for and how it stands, as people who decide on it need to see it."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from django.utils import timezone
from django.utils.translation import gettext as _

from flow_app.core.payload import clean_text
from flow_app.core.snapshot import HookStatus, RunStatus
from flow_app.models import Hook
from flow_app.presenting import when

APPROVAL = "human_approval"


@dataclass(frozen=True, slots=True)
class HookFacts:
    """The part of a hook's metadata that says what it is for; any JSON is legal metadata, and then all is empty."""

    kind: str = ""
    subject: str = ""
    labels: dict[str, str] = field(default_factory=dict)

    @property
    def is_approval(self) -> bool:
        return self.kind == APPROVAL


def facts_of(hook: Hook) -> HookFacts:
    tree = _tree(hook.metadata)
    if not isinstance(tree, dict):
        return HookFacts()
    labels = tree.get("labels")
    return HookFacts(
        kind=_text(tree.get("kind")),
        subject=_text(tree.get("subject")),
        labels={_text(name): _text(value) for name, value in labels.items()} if isinstance(labels, dict) else {},
    )


def is_open(hook: Hook) -> bool:
    """Can it be answered?"""
    return hook.status == HookStatus.ACTIVE.value and not RunStatus(hook.run.status).is_terminal


def standing(hook: Hook) -> str:
    """How a hook stands, in one sentence; which way, and who decided it, where somebody did."""
    if is_open(hook):
        return _("It waits for an answer.")
    values = {"who": hook.resolved_by or _("somebody"), "when": _moment(hook)}
    match hook.status:
        case HookStatus.RECEIVED:
            return _verdict(hook) % values
        case HookStatus.DISPOSED:
            return _("%(who)s has withdrawn it (%(when)s).") % values
        case HookStatus.EXPIRED:
            return _("Its deadline has passed (%(when)s), without an answer.") % values
        case _:
            return _("It was cancelled with its run.")


def _verdict(hook: Hook) -> str:
    tree = _tree(hook.received)
    approved = tree.get("approved") if isinstance(tree, dict) and facts_of(hook).is_approval else None
    if approved is True:
        return _("%(who)s has approved it (%(when)s).")
    if approved is False:
        return _("%(who)s has rejected it (%(when)s).")
    return _("%(who)s has answered it (%(when)s).")


def _moment(hook: Hook) -> str:
    return "" if hook.resolved_at is None else when(hook.resolved_at, now=timezone.now())


def _tree(text: str | None) -> Any:
    try:
        return None if text is None else json.loads(text)
    except (ValueError, RecursionError):
        return None


def _text(value: object) -> str:
    return clean_text(value, limit=200) if isinstance(value, str) else ""
