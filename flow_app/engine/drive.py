"""The drive: claim the lease, fold the history once, then ask, decide, append and execute until nothing is left."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from flow_app.core import decider, instants
from flow_app.core import events as ev
from flow_app.core.commands import Command, ScheduleSteps
from flow_app.core.context import WorkflowContext
from flow_app.core.payload import clean_text
from flow_app.core.ports import NewRun, RunChange, RunRow, WakeReason
from flow_app.core.remote import Awaited
from flow_app.core.snapshot import RunStatus, StepStatus
from flow_app.core.tasks import DriveRun
from flow_app.engine import rows, sending, shutdown
from flow_app.engine.attempts import Attempts
from flow_app.engine.executors import StepDiedError
from flow_app.engine.journal import Journal, RunIdTakenError, database_is_away
from flow_app.engine.outcomes import Due, error_text
from flow_app.engine.services import Meta, Services
from flow_app.engine.shift import Shift
from flow_app.engine.tracebacks import traceback_of
from flow_app.errors import (
    FlowError,
    HookTokenKeyMissingError,
    InvalidTransitionError,
    InvalidWorkflowError,
    LeaseLostError,
    PayloadError,
    RuntimeBuildUnavailableError,
    RuntimeFailureError,
    StepNotRegisteredError,
)

logger = logging.getLogger("flow_app.engine")

#: Workflow code that takes longer than this once has outcomes committed before it is asked again.
_SLOW = 0.05
_MAX_PENDING = 64
_SAID_BY_THE_CONTEXT = (
    HookTokenKeyMissingError,
    InvalidTransitionError,
    InvalidWorkflowError,
    PayloadError,
    StepNotRegisteredError,
)


@dataclass(frozen=True, slots=True)
class Wakeup:
    """A timer or a delayed retry that came due: ``kind`` is ``wait`` or ``retry``."""

    kind: str
    run_id: str
    subject_id: str


def drive(
    services: Services,
    run_id: str,
    *,
    complete_due: bool = False,
    now: datetime | None = None,
    shift: Shift | None = None,
) -> list[Wakeup]:
    """Drive a run as far as it goes; returns the timers and retries this drive brought in.

    ``complete_due`` completes the timers that are due at the start. ``now`` may lie ahead of the clock, to release
    retries early; it never goes back behind it. A run that somebody else drives, or that has ended, is left alone.
    A worker passes its ``shift``, which may hold some of the steps that are to be sent.

    Raises what stops the run: the workflow's error, NonDeterministicError and their kin (the run is then *blocked*),
    RuntimeBuildUnavailableError, LeaseLostError, StoreError. Raises InvalidTransitionError inside a transaction.
    """
    if services.store.in_caller_transaction():
        raise InvalidTransitionError(
            "a run cannot be driven inside a transaction: its steps would be undone with it, and their effects not. "
            "Call start or resume there instead, which drive on commit",
            run_id=run_id,
        )
    if shutdown.requested():
        return []  # the run's wake_at brings it back
    if now is not None:
        now = instants.utc(now, what="now")
    builds_differ = services.builds is not None
    if builds_differ:
        _leave_to_its_build(services, run_id)
    row = services.store.claim(run_id, lease=services.options.lease, unpinned_only=not builds_differ)
    if row is None:
        if not builds_differ:
            _leave_to_its_build(services, run_id)
        return []
    journal = Journal(services, row)
    return Drive(services, journal, now=now, shift=shift).run(complete_due=complete_due)


def drive_from_birth(services: Services, run: NewRun, first: Sequence[ev.Event], *, meta: Meta | None) -> None:
    """Drive a run that the first append of this drive creates, under a lease that it is born with.

    Raises RunIdTakenError when the run exists, and what stops the run, as :func:`drive` does.
    """
    until = services.store.clock.now() + services.options.lease
    lease = RunChange(lease_expires_at=until, wake_at=until, wake_reason=WakeReason.DRIVING)
    run = replace(run, lease_epoch=1, change=run.change | lease)
    journal = Journal(services, run.row(), unborn=run)
    journal.record(first, meta=meta)
    Drive(services, journal).run(complete_due=True)


def _leave_to_its_build(services: Services, run_id: str) -> None:
    """Raise for a run of another build, which is not even claimed: its own driver may still be at it."""
    row = services.store.row(run_id)
    try:
        if not row.status.is_terminal:
            services.admit(run_id, row.build)
    except RuntimeBuildUnavailableError:
        if row.lease_expires_at is None and row.paused_at is None:
            services.store.park(row, change=RunChange(wake_reason=WakeReason.NO_WORKER))
        raise


class Drive:
    """One drive of one run, under one lease."""

    def __init__(
        self, services: Services, journal: Journal, *, now: datetime | None = None, shift: Shift | None = None
    ) -> None:
        self.services = services
        self.journal = journal
        self._at = now
        self._shift = Shift(services) if shift is None else shift
        self._slow_workflow = False
        self._batch = False  # does the workflow ask for several steps?
        self._attempts = Attempts(services, journal, self._shift)
        self._released: list[Wakeup] = []

    @property
    def now(self) -> datetime:
        """The one clock's time, or the caller's where that is later."""
        now = self.services.store.clock.now()
        return now if self._at is None else max(now, self._at)

    # --- the frame: whatever happens, the lease is let go -----------------------------------------------------------

    def run(self, *, complete_due: bool) -> list[Wakeup]:
        try:
            if self.journal.unborn is None:
                self.journal.load()
            self._bring_in_due(complete_due=complete_due)
            while self._turn():
                pass
        except (LeaseLostError, RunIdTakenError):
            raise
        except StepDiedError:
            self._let_go()  # as if the body had stopped this thread: counted, so that it comes to an end
            raise
        except Exception as error:
            # With the database in trouble the run is not to blame: its lease expires, and the scheduler brings it back.
            if self.journal.unborn is None and not database_is_away(error):
                self._block(error)
            raise
        except BaseException:
            if self.journal.unborn is None:
                self._let_go()
            raise
        finally:
            self._attempts.abandon()
        waits = [Wakeup("wait", self.journal.row.run_id, wait_id) for wait_id in self.journal.completed_waits]
        return waits + self._released

    def _block(self, error: Exception) -> None:
        """Say on the row what stops the run, and when it is tried again. An event that came meanwhile tries at once."""
        store = self.services.store
        code = error.code if isinstance(error, FlowError) else "runtime"
        text = clean_text(str(error) if isinstance(error, FlowError) else error_text(error), limit=4000)
        traceback = self._traceback_of(error)
        row = self.journal.row
        logger.warning("Run %s is blocked: %s", row.run_id, code, extra={"run_id": row.run_id, "code": code})
        timer = self.journal.state.next_timer()
        change = rows.blocked(row, code=code, text=text, traceback=traceback, now=store.clock.now(), timer=timer)
        change |= rows.awaiting(row, Awaited.ANY)
        if store.park(row, change=rows.asleep(row, change)):
            return
        current = store.row(row.run_id)
        now = store.clock.now()
        change = rows.blocked(current, code=code, text=text, traceback=traceback, now=now)
        self._park_elsewhere(current, change | RunChange(wake_at=now))

    def _traceback_of(self, error: Exception) -> str:
        """Where the workflow's code failed; what the drive says of that besides is in the text."""
        if not self.services.options.tracebacks:
            return ""
        failure = error.__cause__ if isinstance(error, RuntimeFailureError) else None
        return traceback_of(error if failure is None else failure)

    def _park_elsewhere(self, current: RunRow, change: RunChange) -> None:
        """Park a row that has moved on since, if this drive still holds its lease."""
        if current.lease_epoch == self.journal.row.lease_epoch and not current.status.is_terminal:
            self.services.store.park(current, change=rows.asleep(current, change))

    def _let_go(self) -> None:
        """The process is being stopped: commit what happened, and let another one take over at once.

        A lease under which a step's body ran is left as expired, not as free: the delivery counts as lost, so that a
        body which stops its process each time comes to an end.
        """
        journal, store = self.journal, self.services.store
        try:
            journal.flush()
            now = store.clock.now()
            running = any(
                journal.state.steps[step_id].status is StepStatus.RUNNING for step_id in journal.state.open_steps
            )
            change = RunChange(lease_expires_at=now if running else None, wake_at=now, wake_reason=WakeReason.RUNNABLE)
            if store.park(journal.row, change=rows.asleep(journal.row, change)) is None:
                self._park_elsewhere(store.row(journal.row.run_id), change)
        except Exception:
            run_id = journal.row.run_id
            logger.warning("Run %s: the lease could not be released and will expire", run_id, extra={"run_id": run_id})

    # --- one turn -----------------------------------------------------------------------------------------------------

    def _bring_in_due(self, *, complete_due: bool) -> None:
        """Complete what is due, and expire hooks. A timer that is created already due waits for the next drive."""
        find = decider.due_events if complete_due else decider.expired_hooks
        for event in find(self.journal.state, self.now):
            self.journal.settle(Due(event))

    def _turn(self) -> bool:
        """Ask for one command and carry it out; False when the run has ended, is parked or paused, or had its slice."""
        journal, state = self.journal, self.journal.state
        if state.is_terminal:
            return not journal.flush()
        if journal.row.paused_at is not None:
            return not journal.let_go_if_paused()
        if state.lifecycle is RunStatus.PENDING:
            journal.record((ev.RunStarted(),))
        if journal.row.steps_out and (late := sending.late_outcomes(self.services, journal)) is not None:
            return not journal.flush(rows.parked(state) | rows.awaiting(journal.row, late))
        exhausted = decider.repair_exhaustion(state)
        if exhausted is not None:
            journal.record((exhausted,))
            return True
        decision = self._decide()
        if decision is None:
            return True
        if decision.parks:
            return not journal.flush(rows.parked(state) | rows.awaiting(journal.row, Awaited.ANY))
        if self._slice_is_over() and not decision.ends:
            return not self._yield()  # the decision is made again by who drives on
        return self._carry_out(decision)

    def _decide(self) -> decider.Decision | None:
        """What the workflow asks for next; None when the state changed under the question."""
        journal = self.journal
        if journal.pending and (self._slow_workflow or len(journal.pending) > _MAX_PENDING) and not journal.flush():
            return None
        try:
            command = self._ask()
            self._batch = isinstance(command, ScheduleSteps) and len(command.steps) > 1
            return decider.decide(journal.state, command, now=self.now, limits=self.services.options.limits)
        except Exception:
            born_now = journal.unborn is not None
            if not journal.flush() or born_now:
                return None  # it was asked about a state that is no more, or before its run was there: ask again
            raise

    def _ask(self) -> Command:
        """Call the workflow. Errors of the context and the registry come through as they are, others as its failure."""
        clock = self.services.store.clock
        asked = clock.monotonic()
        try:
            command = self.services.runtime.run_workflow(self._context())
        except _SAID_BY_THE_CONTEXT:
            raise
        except Exception as error:
            row = self.journal.row
            raise RuntimeFailureError(
                f"Run {row.run_id!r}: workflow {row.workflow!r} raised {error_text(error)}"
            ) from error
        self._slow_workflow = clock.monotonic() - asked > _SLOW
        return command

    def _context(self) -> WorkflowContext:
        services, journal = self.services, self.journal

        def history() -> list[ev.EventEnvelope]:
            committed = [] if journal.unborn else services.store.history(journal.row.run_id)
            ahead = enumerate(journal.pending, start=len(committed) + 1)
            return committed + [
                ev.EventEnvelope(journal.row.run_id, at, new.event_id, new.recorded_at, new.event, new.meta)
                for at, new in ahead
            ]

        return WorkflowContext(journal.state, history=history, secrets=services.secrets, limits=services.options.limits)

    def _carry_out(self, decision: decider.Decision) -> bool:
        journal = self.journal
        if decision.run and (journal.row.steps_out or self.services.sends_steps):
            plan = sending.plan(self.services, journal, decision, batch=self._batch)
            if plan is None:
                journal.rebase()
                return True
            if not plan.here:
                return not self._send(decision, plan)
            decision = replace(decision, run=plan.here)
        released = sending.released(journal.state, decision.run)
        redelivered = [
            step_id
            for step_id in decision.run
            if (step := journal.state.steps.get(step_id)) is not None and step.status is StepStatus.RUNNING
        ]
        if decision.guarded:
            journal.flush_guarded(decision.events)
            return True
        journal.declare(decision.events)
        if not decision.run or not journal.flush():
            return True
        if journal.appends == 0:
            self._keep_the_claim()
        self._released += [Wakeup("retry", journal.row.run_id, step_id) for step_id in released]
        self._attempts.run(list(decision.run), redelivered, stops=self._slice_is_over)
        return True

    def _keep_the_claim(self) -> None:
        """Wait for the disk: attempts that run since an earlier drive are about to run again, and nothing else is said.

        A claim that is not durable yet would be nobody's after a crash of the database's server.
        """
        store, row = self.services.store, self.journal.row
        if not store.renew(row, lease=self.services.options.lease):
            raise LeaseLostError(row.run_id, row.lease_epoch)

    def _send(self, decision: decider.Decision, plan: sending.Plan) -> bool:
        """Let the steps travel, and park until they are back; False when the state changed meanwhile."""
        journal = self.journal
        released = sending.released(journal.state, plan.sent)
        if not sending.send(self.services, journal, decision, plan, shift=self._shift):
            return False
        self._released += [Wakeup("retry", journal.row.run_id, step_id) for step_id in released]
        return True

    # --- slices -------------------------------------------------------------------------------------------------------

    def _slice_is_over(self) -> bool:
        return shutdown.requested() or (self.journal.appends > 0 and self._shift.is_over)

    def _yield(self) -> bool:
        """Let go with work left, and ask to be driven again, so that others get their turn."""
        services, wake_at = self.services, self.services.store.clock.now()
        if not shutdown.requested():  # else whoever would get the hint may be stopping as well
            wake_at += services.options.dispatch_grace
        change = RunChange(lease_expires_at=None, wake_at=wake_at, wake_reason=WakeReason.DISPATCHED)
        if not self.journal.flush(change):
            return False
        services.dispatch_quietly(self.journal.row.build, DriveRun(self.journal.row.run_id))
        return True
