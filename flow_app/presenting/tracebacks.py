"""Where code failed, for those who may see payloads: the messages in it may hold anything."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from flow_app.core.payload import clean_text
from flow_app.core.snapshot import OutcomeType
from flow_app.models import Event, Run
from flow_app.presenting.payloads import Excerpt, Redact

#: Its name in an event's meta, and for ``redact``.
TRACEBACK = "traceback"


def traceback_of(run: Run) -> str:
    """Of what blocks the run, or of the attempt that has ended it; empty where none is kept. One query, or none."""
    if run.blocked_code:
        return run.blocked_traceback
    if run.outcome != OutcomeType.RETRY_EXHAUSTED:
        return ""
    last = Event.objects.using(run._state.db).filter(run=run.pk, sequence=run.last_sequence)
    return traceback_in(last.values_list("meta", flat=True).first() or "{}")


def traceback_in(meta: str) -> str:
    """What is kept beside an event, from its stored meta."""
    return _text_in(json.loads(meta)) if TRACEBACK in meta else ""


def reveal(traceback: str, *, redact: Redact) -> str:
    """A traceback as those may see it who may see payloads."""
    return _text_in(redact({TRACEBACK: traceback})) if traceback else ""


def ending_of(traceback: str, *, redact: Redact, limit: int) -> Excerpt | None:
    """The same for a page: the last characters, where it says what went wrong; None where nothing is to be seen."""
    text = clean_text(reveal(traceback, redact=redact))
    if not text:
        return None
    is_cut = len(text) > limit
    return Excerpt("…" + text[1 - limit :] if is_cut else text, len(text), is_cut=is_cut)


def text_of(stored: object) -> str:
    """A traceback as it is stored, or as ``redact`` left it; empty for all that is no text."""
    return stored if isinstance(stored, str) else ""


def _text_in(found: Any) -> str:
    return text_of(found.get(TRACEBACK)) if isinstance(found, Mapping) else ""
