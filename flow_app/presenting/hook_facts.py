"""What a hook is for, as its metadata says it."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from flow_app.core.payload import clean_text
from flow_app.presenting.labels import first_labels, how_many_more

APPROVAL = "human_approval"
#: Labels of one hook that lists and pages show.
_LABELS = 20


@dataclass(frozen=True, slots=True)
class HookFacts:
    """The part of a hook's metadata that says what it is for; any JSON is legal metadata, and then all is empty.

    ``labels`` are the first; ``more_labels`` says that there are more, and is empty if not.
    """

    kind: str = ""
    subject: str = ""
    labels: dict[str, str] = field(default_factory=dict)
    more_labels: str = ""

    @property
    def is_approval(self) -> bool:
        return self.kind == APPROVAL


def facts_of(metadata: str | None) -> HookFacts:
    """What stored metadata says; nothing, where it was not read or is not readable."""
    tree = tree_of(metadata)
    if not isinstance(tree, dict):
        return HookFacts()
    found = tree.get("labels")
    labels = found if isinstance(found, dict) else {}
    return HookFacts(
        kind=_text(tree.get("kind")),
        subject=_text(tree.get("subject")),
        labels={_text(name): _text(value) for name, value in first_labels(labels, most=_LABELS).items()},
        more_labels=how_many_more(labels, most=_LABELS),
    )


def tree_of(text: str | None) -> Any:
    """Stored JSON as a tree; None for none, and for what cannot be read."""
    try:
        return None if text is None else json.loads(text)
    except (ValueError, RecursionError):
        return None


def _text(value: object) -> str:
    return clean_text(value, limit=200) if isinstance(value, str) else ""
