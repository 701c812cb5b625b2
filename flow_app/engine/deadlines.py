"""How long an attempt of a step may take. The end of its time is a fence: the attempt ends, the body may go on."""

from __future__ import annotations

import queue
from datetime import timedelta

from flow_app.core import decider
from flow_app.core.ports import Clock
from flow_app.engine.executors import Job, result, start_thread
from flow_app.engine.outcomes import Outcome


class Deadline:
    """The end of one attempt's time, which begins when its body does."""

    def __init__(self, clock: Clock, timeout: timedelta) -> None:
        self._clock = clock
        self._timeout = timeout.total_seconds()
        self._ends_at: float | None = None

    def begin(self) -> None:
        self._ends_at = self._clock.monotonic() + self._timeout

    @property
    def left(self) -> float:
        """Seconds, at least 0."""
        return self._timeout if self._ends_at is None else max(self._ends_at - self._clock.monotonic(), 0.0)

    @property
    def passed(self) -> bool:
        return not self.left


def timed_out(step_id: str, attempt: int, clock: Clock) -> Outcome:
    return Outcome(step_id, attempt, None, decider.TIMED_OUT, clock.now())


def run_within(deadline: Deadline, job: Job, clock: Clock, *, step_id: str, attempt: int, threads: bool) -> Outcome:
    """Run a body in a thread of its own until its time is over; without ``threads`` in this one, and judge it then."""
    deadline.begin()
    outcome = _outcome_in_time(deadline, job) if threads else job()
    return timed_out(step_id, attempt, clock) if outcome is None or deadline.passed else outcome


def _outcome_in_time(deadline: Deadline, job: Job) -> Outcome | None:
    settled: queue.SimpleQueue[Outcome | BaseException] = queue.SimpleQueue()
    seconds = deadline.left
    start_thread(job, settled)
    try:
        return result(settled.get(timeout=seconds))
    except queue.Empty:
        return None
