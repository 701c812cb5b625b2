"""A run's history as lanes of spans: a lane per step, wait and hook, in the order in which they began. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum

from flow_app.presenting.marks import Mark


class SpanState(StrEnum):
    """What went on in a span, or how it came out."""

    QUEUED = "queued"
    RUNNING = "running"
    BACKOFF = "backoff"
    WAITING = "waiting"
    DONE = "done"
    FAILED = "failed"
    EXPIRED = "expired"
    WITHDRAWN = "withdrawn"
    CANCELLED = "cancelled"

    @property
    def is_pause(self) -> bool:
        """Nothing is worked on."""
        return self in (SpanState.QUEUED, SpanState.BACKOFF)


@dataclass(frozen=True, slots=True)
class Span:
    """``end`` is None while it lasts. ``until``: when it is due to end. ``actor`` ended it."""

    state: SpanState
    start: datetime
    end: datetime | None = None
    attempt: int = 0
    until: datetime | None = None
    note: str = ""
    actor: str = ""


@dataclass(slots=True)
class Lane:
    """``kind`` is step, wait or hook; ``detail`` a step's name."""

    kind: str
    name: str
    detail: str = ""
    spans: list[Span] = field(default_factory=list)

    @property
    def last(self) -> Span:
        return self.spans[-1]

    @property
    def attempts(self) -> int:
        return max(span.attempt for span in self.spans)


@dataclass(frozen=True, slots=True)
class Timeline:
    """``milestones`` are the run's own events: its start, the request to cancel, its end."""

    lanes: list[Lane]
    milestones: list[Mark]


def timeline(marks: Iterable[Mark]) -> Timeline:
    """Fold events, oldest first. They may begin in the middle: what was opened before begins where it is first seen."""
    fold = _Fold()
    for mark in marks:
        apply = _APPLY.get(mark.type)
        if apply is not None:
            apply(fold, mark)
        elif mark.type.startswith("run_") and mark.type not in ("run_created", "run_progress_recorded"):
            fold.milestone(mark)
    return Timeline(list(fold.lanes.values()), fold.milestones)


class _Fold:
    def __init__(self) -> None:
        self.lanes: dict[tuple[str, str], Lane] = {}
        self.open: dict[tuple[str, str], Lane] = {}
        self.milestones: list[Mark] = []

    def lane(self, kind: str, mark: Mark) -> Lane:
        lane = self.lanes.setdefault((kind, mark.name), Lane(kind, mark.name))
        lane.detail = lane.detail or mark.detail
        return lane

    def begin(self, kind: str, state: SpanState, mark: Mark) -> None:
        lane = self.lane(kind, mark)
        if lane.spans and lane.last.end is None:
            self._finish(lane, lane.last.state, mark)
        lane.spans.append(Span(state, mark.at, attempt=mark.attempt, until=mark.until))
        self.open[kind, mark.name] = lane

    def finish(self, kind: str, state: SpanState, mark: Mark) -> None:
        lane = self.lane(kind, mark)
        if not lane.spans:
            lane.spans.append(Span(state, mark.at))
        self._finish(lane, state, mark, note=mark.note)
        self.open.pop((kind, mark.name), None)

    def _finish(self, lane: Lane, state: SpanState, mark: Mark, *, note: str = "") -> None:
        lane.spans[-1] = replace(lane.last, state=state, end=mark.at, note=note, actor=mark.actor)

    def milestone(self, mark: Mark) -> None:
        self.milestones.append(mark)
        if mark.type != "run_started":  # a request to cancel and every end close what is open
            for lane in self.open.values():
                state = lane.last.state if lane.last.state.is_pause else SpanState.CANCELLED
                self._finish(lane, state, mark)
            self.open.clear()

    def retry(self, mark: Mark) -> None:
        self.finish("step", SpanState.FAILED, mark)
        self.begin("step", SpanState.BACKOFF, replace(mark, attempt=0))


def _begins(kind: str, state: SpanState) -> Callable[[_Fold, Mark], None]:
    return lambda fold, mark: fold.begin(kind, state, mark)


def _ends(kind: str, state: SpanState) -> Callable[[_Fold, Mark], None]:
    return lambda fold, mark: fold.finish(kind, state, mark)


_APPLY: dict[str, Callable[[_Fold, Mark], None]] = {
    "step_created": _begins("step", SpanState.QUEUED),
    "step_started": _begins("step", SpanState.RUNNING),
    "step_completed": _ends("step", SpanState.DONE),
    "step_failed": _ends("step", SpanState.FAILED),
    "step_retrying": _Fold.retry,
    "wait_created": _begins("wait", SpanState.WAITING),
    "wait_completed": _ends("wait", SpanState.DONE),
    "hook_created": _begins("hook", SpanState.WAITING),
    "hook_received": _ends("hook", SpanState.DONE),
    "hook_disposed": _ends("hook", SpanState.WITHDRAWN),
    "hook_expired": _ends("hook", SpanState.EXPIRED),
}
