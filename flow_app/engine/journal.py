"""What a drive has decided and not yet committed, and how it becomes history, whoever else writes meanwhile."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import count
from typing import Any, TypeVar, cast
from uuid import uuid4

from django.db.utils import DatabaseError, InterfaceError, OperationalError

from flow_app.core import events as ev
from flow_app.core.ports import NewEvent, NewRun, Recorded, RunChange, RunRow
from flow_app.core.projection import evolve
from flow_app.core.remote import NewStep, StepStore
from flow_app.core.snapshot import StepStatus
from flow_app.core.state import RunState
from flow_app.engine import rows
from flow_app.engine.outcomes import Fact
from flow_app.engine.services import Services
from flow_app.engine.tracebacks import meta_of
from flow_app.errors import (
    EventConflictError,
    FlowError,
    HookTokenConflictError,
    LeaseLostError,
    ReplayLimitExceededError,
    RunConflictError,
    RunNotFoundError,
    StoreError,
)

logger = logging.getLogger("flow_app.engine")

T = TypeVar("T")

#: What a store may refuse of a decision, and another decision may not run into.
_REFUSALS = (HookTokenConflictError, RunNotFoundError, RunConflictError)
#: "Got a packet bigger than 'max_allowed_packet'", of MariaDB and of its client: the next try would be as big.
_TOO_LARGE = ((1153,), (2020,))
_PAUSES = (0.05, 0.1, 0.2, 0.5, 1.0)


class RunIdTakenError(Exception):
    """A run that was to be created with this append is there already, written by somebody else."""


class Journal:
    """A run's state folded ahead of its log. ``flush`` commits all that is pending in one append.

    On a conflict only facts survive: outcomes of steps, and deadlines that have passed. Decisions are made again.
    """

    def __init__(self, services: Services, row: RunRow, *, unborn: NewRun | None = None) -> None:
        self.services = services
        self.store = services.store
        self.row = row
        self.unborn = unborn  # a run that the first append will create
        self.state = RunState(row.run_id)
        self.pending: list[NewEvent] = []
        self.completed_waits: list[str] = []  # by this drive, and committed
        self.appends = 0
        self._facts: list[Fact] = []
        self._conflicts = 0
        self._redelivered: dict[str, int] = {}  # attempts that were running at the start, by step

    def load(self) -> None:
        """Read the whole history, once."""
        for recorded in self.store.load(self.row):
            evolve(self.state, recorded)
        if self.row.steps_out:
            return  # those that run are with other workers, whose deaths are counted by attempt
        steps = [self.state.steps[step_id] for step_id in self.state.open_steps]
        self._redelivered = {step.step_id: step.attempt for step in steps if step.status is StepStatus.RUNNING}

    def _redelivery_is_open(self) -> bool:
        """Does an attempt still run that an earlier worker may have died of?"""
        steps = self.state.steps
        return any(
            steps[step_id].status is StepStatus.RUNNING and steps[step_id].attempt == attempt
            for step_id, attempt in self._redelivered.items()
        )

    # --- folding ahead ----------------------------------------------------------------------------------------------

    def record(self, events: Iterable[ev.Event], *, meta: Mapping[str, Any] | None = None, traceback: str = "") -> None:
        """Fold events that are to be appended, with a failure's traceback. A refused one raises, and is not pending."""
        now, known = self.store.clock.now(), meta or {}
        for event in events:
            self.state.mark()
            evolve(self.state, Recorded(self.state.last_sequence + 1, event, now))
            kept = meta_of(event, meta, traceback) if traceback else known
            self.pending.append(NewEvent(event, uuid4(), now, kept))

    def declare(self, events: Iterable[ev.Event]) -> None:
        """Fold a decision. One that the fold refuses raises, and what was pending before is committed without it."""
        mark, kept = self.state.mark(), len(self.pending)
        try:
            self.record(events)
        except FlowError:
            self._take_back(mark, kept)
            raise

    def settle(self, fact: Fact) -> bool:
        """Fold what happened; False when nobody waits for it any more."""
        events = fact.events(self.state)
        if not events:
            run_id = self.row.run_id
            logger.info("Run %s: %s comes too late and is dropped", run_id, fact, extra={"run_id": run_id})
            return False
        self.record(events, traceback=fact.traceback)
        self._facts.append(fact)
        return True

    # --- committing -------------------------------------------------------------------------------------------------

    def flush(self, change: RunChange | None = None, *, send: Sequence[NewStep] = ()) -> bool:
        """Commit what is pending, ``change`` on the row, and a note of the steps that are about to be sent.

        False: somebody else wrote; the state shows it now.
        """
        try:
            if self.pending or send:
                self._append(change, send)
            elif change is not None:
                return self._park(change)
        except (EventConflictError, LeaseLostError):  # a run that was ended has no lease: the rebase tells that apart
            self.rebase()
            return False
        return True

    def flush_guarded(self, events: Iterable[ev.Event]) -> bool:
        """Commit events that the store may refuse. Refused, what was pending before is committed without them."""
        mark, kept = self.state.mark(), len(self.pending)
        self.declare(events)
        try:
            return self.flush()
        except _REFUSALS:
            self._take_back(mark, kept)
            raise

    def _take_back(self, mark: int, kept: int) -> None:
        """Undo the last decision, and commit what was pending before it."""
        self.state.rollback(mark)
        del self.pending[kept:]
        self.flush()

    def _append(self, extra: RunChange | None, send: Sequence[NewStep] = ()) -> None:
        change = self._change(extra)
        self._committed(self._surely(self._sending(change, send) if send else lambda: self._write(change)))

    def _sending(self, change: RunChange, steps: Sequence[NewStep]) -> Callable[[], RunRow]:
        """A write that may be tried again, of what is pending and of notes of the steps, in one commit."""
        store, row = cast("StepStore", self.store), self.row
        tries = count(1)

        def write() -> RunRow:
            grace, again = self.services.options.dispatch_grace, next(tries) > 1
            moved = self._write(change) if self.pending else store.park(row, change=change)
            if moved is None:
                raise EventConflictError(row.run_id, expected=row.last_sequence, actual=None)
            # Nobody may have heard that the first try had committed: then steps may be back, and noted no more.
            if not (again and store.lock(row.run_id).last_sequence != moved.last_sequence):
                store.send_steps(moved, steps, grace=grace)
            return moved

        return lambda: self._write_in_one(change, steps) or store.transact(write)

    def _write_in_one(self, change: RunChange, steps: Sequence[NewStep]) -> RunRow | None:
        store, row, grace = cast("StepStore", self.store), self.row, self.services.options.dispatch_grace
        if self.unborn is not None or not self.pending:
            return None
        moved = store.append_and_send(row, self.pending, steps, change=change, epoch=row.lease_epoch, grace=grace)
        if moved is not None:
            self.services.announce(row, self.pending, after=row.last_sequence)
        return moved

    def _write(self, change: RunChange, *, locked: bool = False) -> RunRow:
        """Append under the lease, or under the row's lock: a pause keeps no fact out."""
        if self.unborn is not None:
            return self._create(self.unborn, change)
        epoch = None if locked else self.row.lease_epoch
        moved = self.store.append(self.row, self.pending, change=change, epoch=epoch)
        self.services.announce(self.row, self.pending, after=self.row.last_sequence)
        return moved

    def _create(self, run: NewRun, change: RunChange) -> RunRow:
        row = self.store.create(replace(run, change=run.change | change), self.pending)
        if row is None:
            row = self._created_before(run.run_id)
        self.services.announce(self.row, self.pending, after=self.row.last_sequence)
        return row

    def _created_before(self, run_id: str) -> RunRow:
        """The row, if an earlier try of this very append had committed. Raises RunIdTakenError."""
        row = self.store.row(run_id)
        recorded = self.store.events_of_type(row, ev.RunCreated.type)  # one event: the history may be long
        if not recorded or recorded[0].event_id != self.pending[0].event_id:
            raise RunIdTakenError(run_id)
        return row

    def _change(self, extra: RunChange | None) -> RunChange:
        """What the row shows once the pending events are there."""
        store, row = self.store, self.row
        now = store.clock.now()
        change = rows.of_state(row, self.state, now=now)
        change |= rows.of_progress(new.event for new in self.pending)
        change |= rows.unblocked(row)
        if row.lost_leases and not self._redelivery_is_open():
            change["lost_leases"] = 0  # not before: a sibling's outcome must not hide a step that kills its worker
        if extra is not None:
            change = extra | change if self.state.is_terminal else change | extra
        self._renew_if_old(change, now)
        return change

    def _committed(self, row: RunRow) -> None:
        self.row = row
        self.unborn = None
        self.state.commit()
        self.completed_waits += [new.event.wait_id for new in self.pending if isinstance(new.event, ev.WaitCompleted)]
        self.pending = []
        self._facts = []
        self._conflicts = 0
        self.appends += 1

    def _renew_if_old(self, change: RunChange, now: datetime) -> None:
        expires_at = self.row.lease_expires_at
        lease = self.services.options.lease
        if "lease_expires_at" not in change and expires_at is not None and expires_at - now < lease / 2:
            change["lease_expires_at"] = now + lease

    def _surely(self, write: Callable[[], T]) -> T:
        return surely(self.services, self.row.run_id, write)

    def _park(self, change: RunChange) -> bool:
        change = rows.of_state(self.row, self.state, now=self.store.clock.now()) | rows.unblocked(self.row) | change
        parked = self.store.park(self.row, change=change)
        if parked is None:
            self.rebase()
            return False
        self.row = parked
        return True

    # --- when somebody else wrote first -----------------------------------------------------------------------------

    def rebase(self) -> None:
        """Take pending decisions back, fold what others appended, and append the facts after it.

        Done under the row's lock, so that a chatty writer cannot keep a fact out.
        """
        self._count_conflict()
        self._catch_up(RunChange())

    def let_go_if_paused(self) -> bool:
        """Give the lease of a paused run back, with the facts that are pending; False when it goes on after all."""
        self._catch_up(RunChange(lease_expires_at=None))
        return self.row.paused_at is not None

    def _catch_up(self, if_paused: RunChange) -> None:
        facts, epoch = self._facts, self.row.lease_epoch
        moved = self._surely(lambda: self._write_after_the_tail(facts, epoch, if_paused))
        if moved is not None:
            self._committed(moved)

    def _write_after_the_tail(self, facts: Sequence[Fact], epoch: int, if_paused: RunChange) -> RunRow | None:
        self.state.rollback()
        self.state.commit()
        self.pending, self._facts = [], []
        with self.store.transaction():
            self.row = self.store.lock(self.row.run_id)
            if self.row.lease_epoch != epoch or (self.row.lease_expires_at is None and not self.row.status.is_terminal):
                raise LeaseLostError(self.row.run_id, epoch)
            for recorded in self.store.load(self.row, after=self.state.last_sequence):
                evolve(self.state, recorded)
            for fact in facts:
                self.settle(fact)
            extra = RunChange() if self.row.paused_at is None else if_paused
            if self.pending:
                return self._write(self._change(extra), locked=True)
            return self.store.park(self.row, change=extra) if extra else None

    def _count_conflict(self) -> None:
        self._conflicts += 1
        limit = self.services.options.replay_limit
        if self._conflicts > limit:
            raise ReplayLimitExceededError(self.row.run_id, limit)


def surely(services: Services, run_id: str, write: Callable[[], T]) -> T:
    """Write; while the database is away, try again until the lease must be taken for lost."""
    clock = services.store.clock
    deadline = clock.monotonic() + services.options.lease / timedelta(seconds=1)
    tries = 0
    while True:
        try:
            return write()
        except (StoreError, DatabaseError, InterfaceError) as error:
            if not database_is_away(error) or clock.monotonic() >= deadline:
                raise
            logger.warning(
                "Run %s: the database is away; keeping the outcome and trying again", run_id, extra={"run_id": run_id}
            )
            clock.sleep(_PAUSES[min(tries, len(_PAUSES) - 1)])
            tries += 1


def database_is_away(error: Exception) -> bool:
    """Is the database in trouble, rather than what it was asked?"""
    cause = error.__cause__ if isinstance(error, StoreError) else error
    return isinstance(cause, OperationalError | InterfaceError) and cause.args[:1] not in _TOO_LARGE
