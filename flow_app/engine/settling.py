"""What came of an attempt that travelled, committed by its worker alone: no history is read, and no lease is needed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from flow_app.core import decider
from flow_app.core import events as ev
from flow_app.core.payload import Payload
from flow_app.core.ports import RunChange, RunRow, WakeReason
from flow_app.core.remote import Awaited, StepOut, StepStore
from flow_app.core.snapshot import OutcomeType, RunStatus
from flow_app.core.tasks import DriveRun, RunStep
from flow_app.engine import rows
from flow_app.engine.deadlines import timed_out
from flow_app.engine.journal import surely
from flow_app.engine.outcomes import Outcome
from flow_app.engine.services import Services
from flow_app.engine.shift import Shift
from flow_app.errors import StepLeaseLostError


@dataclass(frozen=True, slots=True)
class Settled:
    """What was committed, and whom to tell: the next attempt goes out, or the run is driven on, or neither."""

    again: bool
    wakes: bool


def settle(
    services: Services, store: StepStore, step: StepOut, outcome: Outcome, *, shift: Shift | None = None
) -> None:
    """Commit an outcome, and send what follows from it.

    Raises LeaseLostError when the attempt is no longer this worker's. One whose time was over before its outcome came
    has failed of that instead.
    """
    settlement = _Settlement(services, store, step)
    try:
        settled = surely(services, step.run.run_id, lambda: settlement.commit(outcome))
    except StepLeaseLostError:
        if step.timeout is None or outcome.error == decider.TIMED_OUT:
            raise
        late = timed_out(step.step_id, step.attempt, store.clock)
        settled = surely(services, step.run.run_id, lambda: settlement.commit(late))
    if settled.again:
        task = RunStep(step.run.run_id, step.step_id, step.attempt + 1)
        services.dispatch_step_quietly(task, build=step.run.build, queue=step.queue)
    elif settled.wakes:
        drive, build = DriveRun(step.run.run_id), step.run.build
        if step.queue is not None or shift is None or not shift.holds_drive(drive, build=build):
            services.dispatch_quietly(build, drive)


class _Settlement:
    def __init__(self, services: Services, store: StepStore, step: StepOut) -> None:
        self.services = services
        self.store = store
        self.step = step

    def commit(self, outcome: Outcome) -> Settled:
        if outcome.output is not None and (settled := self._complete(outcome.output)) is not None:
            return settled
        return self.store.transact(lambda: self._write(outcome))

    def _complete(self, output: Payload) -> Settled | None:
        """The short way, if there is one and nothing is in it; the store says there what :func:`_change` does here."""
        step = self.step
        events = self.services.new_events([ev.StepCompleted(step.step_id, output)])
        closed = self.store.complete_step(step, events[0])
        if closed is None:
            return None
        self.services.announce(step.run, events, after=closed.sequence - 1)
        return Settled(again=False, wakes=closed.wakes)

    def _write(self, outcome: Outcome) -> Settled:
        store, step = self.store, self.step
        row = store.lock(step.run.run_id)
        events = self._events(row, outcome)
        again = self._goes_again(row, events)
        self._take_back(again=again, overdue=outcome.error == decider.TIMED_OUT)
        if again:
            events = (*events, ev.StepStarted(step.step_id, step.attempt + 1))
            self.services.append(row, events, change=RunChange(), traceback=outcome.traceback)
            return Settled(again=True, wakes=False)
        now = store.clock.now()
        wakes = _satisfied(row) and not events[-1].terminal
        change = _change(row, events, wakes=wakes, now=now)
        self.services.append(row, events, change=change, traceback=outcome.traceback)
        return Settled(again=False, wakes=wakes)

    def _events(self, row: RunRow, outcome: Outcome) -> tuple[ev.Event, ...]:
        step = self.step
        if outcome.output is not None:
            return (ev.StepCompleted(step.step_id, outcome.output),)
        late = row.status is RunStatus.CANCELLING and self.store.step_is_late(step)
        return decider.attempt_failed(
            step.step_id, step.attempt, step.retry, late=late, error=outcome.error, failed_at=outcome.at
        )

    def _goes_again(self, row: RunRow, events: Sequence[ev.Event]) -> bool:
        """Is the step tried again at once, by a new message? A paused run sends none: its next drive does."""
        first = events[0]
        at_once = isinstance(first, ev.StepRetrying) and first.retry_after is None
        return at_once and row.paused_at is None and self.services.sends_steps

    def _take_back(self, *, again: bool, overdue: bool) -> None:
        """The fence: only who holds the attempt's token, and in time, may say what came of it."""
        store, step = self.store, self.step
        if again:
            held = store.resend_step(step, grace=self.services.options.dispatch_grace, overdue=overdue)
        else:
            held = store.close_step(step, overdue=overdue)
        if not held:
            raise StepLeaseLostError(step.run.run_id, step.step_id, step.attempt)


def _satisfied(row: RunRow) -> bool:
    """Does the outcome of one more step bring the run back? Who drives it or sleeps needs no hint."""
    idle = row.lease_expires_at is None and row.paused_at is None
    return idle and (row.steps_out == 1 or row.steps_awaited == Awaited.ANY)


def _change(row: RunRow, events: Sequence[ev.Event], *, wakes: bool, now: datetime) -> RunChange:
    last = events[-1]
    if isinstance(last, ev.RunRetryExhausted):
        change = rows.ended(RunStatus.FAILED, OutcomeType.RETRY_EXHAUSTED, error=last.error, now=now)
        return change | rows.recalled(row) | rows.unblocked(row) | rows.unpaused(row)
    change = RunChange(steps_out=row.steps_out - 1)
    if isinstance(last, ev.StepRetrying) and last.retry_after is not None:
        change |= _delayed(row, last.retry_after)
    if wakes:
        change |= rows.runnable(row, now=now) | RunChange(steps_awaited=Awaited.NONE.value)
    return change


def _delayed(row: RunRow, retry_after: datetime) -> RunChange:
    """One more thing to wait for. Who drives the run sees it; else it may be the earliest."""
    change = RunChange(pending_retries=row.pending_retries + 1)
    if row.timer_at is None or retry_after < row.timer_at:
        change["timer_at"] = retry_after
    if row.status is RunStatus.RUNNING:
        change["status"] = RunStatus.SUSPENDED
    idle = row.lease_expires_at is None and row.paused_at is None
    if idle and (row.wake_at is None or retry_after < row.wake_at):
        change |= RunChange(wake_at=retry_after, wake_reason=WakeReason.RETRY)
    return change
