"""A run's events, a page at a time, newest first. Sequences have no gaps, so nothing has to be counted."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from django.db.models import Case, QuerySet, When
from django.db.models.functions import Length

from flow_app.models import Event, Run
from flow_app.presenting import Excerpt, excerpt_of
from flow_app.presenting.marks import Mark, read_marks
from flow_app.presenting.payloads import Redact
from flow_app.presenting.tracebacks import ending_of, traceback_in

EVENTS = 50
#: Events whose body is larger than this are listed without it.
LARGEST = 65_536
_EXCERPT = 2000
#: Characters of one traceback, and of all on a page.
_TRACEBACK, _TRACEBACKS = 8000, 80_000


@dataclass(frozen=True, slots=True)
class EventLine:
    """``body`` is None for who may not see payloads, and where it is too large to be shown: ``size`` characters.

    ``traceback`` is None for them, too, and where none is kept.
    """

    mark: Mark
    body: Excerpt | None
    size: int
    traceback: Excerpt | None


class _Body(NamedTuple):
    """What is read of an event for who may see payloads; ``text`` is None where it is too large to be shown."""

    size: int
    text: str | None
    traceback: str


_NONE = _Body(0, None, "")


@dataclass(frozen=True, slots=True)
class History:
    """``newer`` and ``older`` are the sequences that the neighbouring pages begin at, None where there is none."""

    lines: list[EventLine]
    newer: int | None
    older: int | None
    is_newest: bool


def read_history(run: Run, *, upto: int, redact: Redact | None) -> History:
    """The events up to a sequence. Two queries, or one for who may not see payloads."""
    least = max(upto - EVENTS + 1, 1)
    page = Event.objects.using(run._state.db).filter(run=run.pk, sequence__range=(least, upto)).order_by("-sequence")
    bodies = {} if redact is None else _read_bodies(page)
    room = _room(bodies.values())
    return History(
        lines=[_line(mark, bodies.get(mark.sequence, _NONE), room=room, redact=redact) for mark in read_marks(page)],
        newer=None if upto >= run.last_sequence else min(upto + EVENTS, run.last_sequence),
        older=least - 1 if least > 1 else None,
        is_newest=upto >= run.last_sequence,
    )


def _read_bodies(page: QuerySet[Event]) -> dict[int, _Body]:
    small = Case(When(size__lte=LARGEST, then="payload"))
    found = page.annotate(size=Length("payload"), small=small).values_list("sequence", "size", "small", "meta")
    return {sequence: _Body(size, text, traceback_in(meta)) for sequence, size, text, meta in found}


def _room(bodies: Iterable[_Body]) -> int:
    """Characters that each traceback gets, so that a page of failures stays as small as any."""
    count = sum(1 for body in bodies if body.traceback)
    return min(_TRACEBACK, _TRACEBACKS // max(count, 1))


def _line(mark: Mark, stored: _Body, *, room: int, redact: Redact | None) -> EventLine:
    if redact is None:
        return EventLine(mark, None, stored.size, None)
    traceback = ending_of(stored.traceback, redact=redact, limit=room)
    if stored.text is None:
        return EventLine(mark, None, stored.size, traceback)
    body = json.loads(stored.text)
    body.pop("token", None)  # a digest, which nobody needs to read
    return EventLine(mark, excerpt_of(body, redact=redact, limit=_EXCERPT) if body else None, 0, traceback)
