"""Events without their payloads: what a timeline and a list of events need of each, however large it is."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db.models import Case, QuerySet, TextField, Value, When
from django.db.models.functions import Left, Length, Right

from flow_app.core.instants import from_text
from flow_app.core.payload import clean_text
from flow_app.models import Event

#: Events up to this many characters are read whole; of larger ones only both ends.
_WHOLE = 4000
_NOTE = 1000
#: How the meta of what somebody did begins, its keys being in order; other meta may be long, and is not read.
_ACTED = '{"actor":'
_IDS = ("step_id", "wait_id", "hook_id", "progress_id", "reference_id")

# Keys of the stored text are in order, so an event's id stands at one of its ends, whatever its payload holds.
_CHAR = r'(?:\\u[0-9a-f]{4}|\\[^u]|[^"\\])'
_TEXT = rf'"{_CHAR}*"'
_HOOK_START = re.compile(rf'\{{(?:"expires_at":"[^"]*",)?"hook_id":(?P<hook_id>{_TEXT})')
_STEP_START = re.compile(rf'\{{"attempt":(?P<attempt>\d+),"error":(?P<error>"{_CHAR}{{0,{_NOTE}}})')
_STEP_END = re.compile(rf'"step_id":(?P<step_id>{_TEXT})(?:,"step_name":(?P<step_name>{_TEXT}))?\}}\Z')
_NESTED_END = re.compile(rf'"(?:reference_id|progress_id)":(?P<reference_id>{_TEXT})(?:,"total":\d+)?\}}\}}\Z')


@dataclass(frozen=True, slots=True)
class Mark:
    """One event: ``name`` is the id it is about, ``note`` its error or reason, ``detail`` the step's name."""

    sequence: int
    type: str
    at: datetime
    name: str = ""
    attempt: int = 0
    until: datetime | None = None
    note: str = ""
    detail: str = ""
    actor: str = ""


def read_marks(events: QuerySet[Event]) -> list[Mark]:
    """The events of a queryset, in its order. One query."""
    found = events.annotate(
        size=Length("payload"),
        start=Left("payload", _WHOLE),
        end=Case(When(size__gt=_WHOLE, then=Right("payload", _WHOLE)), default=Value("")),
        acted=Case(When(meta__startswith=_ACTED, then="meta"), default=Value("{}"), output_field=TextField()),
    )
    rows: Iterable[Any] = found.values_list("sequence", "type", "recorded_at", "acted", "start", "end")
    return [_mark(*row) for row in rows]


def _mark(sequence: int, kind: str, at: datetime, meta: str, start: str, end: str) -> Mark:
    body = _ends(kind, start, end) if end else json.loads(start)
    for inner in ("progress", "child", "request"):
        if isinstance(body.get(inner), dict):
            body = {**body, **body[inner]}
    until = body.get("resume_at") or body.get("retry_after") or body.get("expires_at") or body.get("deadline")
    return Mark(
        sequence,
        kind,
        at,
        name=next((body[key] for key in _IDS if key in body), ""),
        attempt=body.get("attempt", 0),
        until=from_text(until) if until else None,
        note=clean_text(body.get("error") or body.get("reason") or body.get("message") or "", limit=_NOTE),
        detail=body.get("step_name", ""),
        actor=_actor(meta),
    )


def _ends(kind: str, start: str, end: str) -> dict[str, Any]:
    """What the two ends of a long event's text tell of it."""
    found: dict[str, str] = {}
    if kind.startswith("hook_") and (match := _HOOK_START.match(start)):
        found |= match.groupdict()
    if kind.startswith("step_") and (match := _STEP_START.match(start)):
        found |= {"attempt": match["attempt"], "error": match["error"] + '"'}
    if kind.startswith("step_") and (match := _STEP_END.search(end)):
        found |= match.groupdict()
    if kind in ("run_progress_recorded", "child_operation_linked") and (match := _NESTED_END.search(end)):
        found |= match.groupdict()
    return {name: json.loads(text) for name, text in found.items() if text}


def _actor(meta: str) -> str:
    actor = None if meta == "{}" else json.loads(meta).get("actor")
    return clean_text(actor, limit=200) if isinstance(actor, str) else ""
