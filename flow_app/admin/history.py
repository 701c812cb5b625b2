"""A run's events, a page at a time, newest first. Sequences have no gaps, so nothing has to be counted."""

from __future__ import annotations

import json
from dataclasses import dataclass

from django.db.models import Case, When
from django.db.models.functions import Length

from flow_app.models import Event, Run
from flow_app.presenting import Excerpt, excerpt_of
from flow_app.presenting.marks import Mark, read_marks
from flow_app.presenting.payloads import Redact

EVENTS = 50
#: Events whose body is larger than this are listed without it.
LARGEST = 65_536
_EXCERPT = 2000


@dataclass(frozen=True, slots=True)
class EventLine:
    """``body`` is None for who may not see payloads, and where it is too large to be shown: ``size`` characters."""

    mark: Mark
    body: Excerpt | None
    size: int


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
    bodies: dict[int, tuple[int, str | None]] = {}
    if redact is not None:
        small = Case(When(size__lte=LARGEST, then="payload"))
        found = page.annotate(size=Length("payload"), small=small).values_list("sequence", "size", "small")
        bodies = {sequence: (size, text) for sequence, size, text in found}
    return History(
        lines=[_line(mark, *bodies.get(mark.sequence, (0, None)), redact=redact) for mark in read_marks(page)],
        newer=None if upto >= run.last_sequence else min(upto + EVENTS, run.last_sequence),
        older=least - 1 if least > 1 else None,
        is_newest=upto >= run.last_sequence,
    )


def _line(mark: Mark, size: int, text: str | None, *, redact: Redact | None) -> EventLine:
    if redact is None or text is None:
        return EventLine(mark, None, size)
    body = json.loads(text)
    body.pop("token", None)  # a digest, which nobody needs to read
    return EventLine(mark, excerpt_of(body, redact=redact, limit=_EXCERPT) if body else None, 0)
