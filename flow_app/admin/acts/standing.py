"""How a hook stands, as people who decide on it need to hear it."""

from __future__ import annotations

from datetime import UTC, datetime

from django.utils.translation import gettext as _

from flow_app.core.snapshot import HookStatus, RunStatus
from flow_app.models import Hook
from flow_app.presenting import facts_of, when
from flow_app.presenting.hook_facts import tree_of


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
    tree = tree_of(hook.received)
    approved = tree.get("approved") if isinstance(tree, dict) and facts_of(hook.metadata).is_approval else None
    if approved is True:
        return _("%(who)s has approved it (%(when)s).")
    if approved is False:
        return _("%(who)s has rejected it (%(when)s).")
    return _("%(who)s has answered it (%(when)s).")


def _moment(hook: Hook) -> str:
    return "" if hook.resolved_at is None else when(hook.resolved_at, now=datetime.now(UTC))
