"""An event store in memory, for fast tests. It promises the event-store contract and nothing beyond the process."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import count
from threading import RLock
from typing import TypeVar
from uuid import UUID

from flow_app.core.codec import to_text
from flow_app.core.events import EventEnvelope
from flow_app.core.payload import Payload
from flow_app.core.ports import (
    Clock,
    DueRun,
    HookRow,
    NewEvent,
    NewRun,
    Recorded,
    RunChange,
    RunIdentity,
    RunRow,
    WakeReason,
)
from flow_app.core.snapshot import HookStatus, RunStatus
from flow_app.errors import EventConflictError, HookTokenConflictError, LeaseLostError, RunNotFoundError
from flow_app.store.after_commit import AfterCommit
from flow_app.store.clock import SystemClock
from flow_app.store.leasing import grace_after, put_off
from flow_app.store.memory_rows import Rows
from flow_app.store.records import meta_text, read_event, read_meta, text_digest
from flow_app.store.rows import moved

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class _Stored:
    """An event, as text, like in a database: what is read is never what was given, but equal to it."""

    event_id: UUID
    type: str
    payload: str
    meta: str
    recorded_at: datetime


@dataclass(frozen=True, slots=True)
class _Run:
    """A run. Every write makes a new one; they share the list of events, of which ``row.last_sequence`` are theirs."""

    row: RunRow
    rows: Rows
    events: list[_Stored] = field(default_factory=list)


class InMemoryEventStore:
    """See :class:`flow_app.core.ports.EventStore`. A transaction is the one lock; what fails in it is undone."""

    def __init__(self, *, clock: Clock | None = None) -> None:
        self.clock: Clock = SystemClock() if clock is None else clock
        self._runs: dict[str, _Run] = {}
        self._keys = count(1)
        self._lock = RLock()
        self._after_commit = AfterCommit()

    # --- transactions -------------------------------------------------------------------------------------------------

    @contextmanager
    def transaction(self) -> Iterator[None]:
        with self._after_commit.block(), self._lock:
            before = dict(self._runs)
            try:
                yield
            except BaseException:
                self._runs = before
                for run in before.values():
                    del run.events[run.row.last_sequence :]
                raise

    def transact(self, act: Callable[[], T]) -> T:
        with self.transaction():
            return act()

    def in_caller_transaction(self) -> bool:
        return False

    def threads_see_writes(self) -> bool:
        return True

    def on_commit(self, act: Callable[[], None]) -> None:
        self._after_commit.call(act)

    # --- writing ------------------------------------------------------------------------------------------------------

    def create(self, run: NewRun, events: Sequence[NewEvent]) -> RunRow | None:
        with self._lock:
            if run.run_id in self._runs:
                return None
            made = _Run(run.row(next(self._keys)), Rows(run.run_id))
            return self._store(made, events, run.change)

    def append(self, row: RunRow, events: Sequence[NewEvent], *, change: RunChange, epoch: int | None = None) -> RunRow:
        with self._lock:
            run = self._run(row.run_id)
            now = run.row
            fenced = epoch is None or (now.lease_epoch == epoch and now.lease_expires_at is not None)
            paused = epoch is not None and now.paused_at is not None
            if fenced and not paused and now.last_sequence == row.last_sequence:
                self._store(run, events, change)
            elif run.events[row.last_sequence :][:1] and run.events[row.last_sequence].event_id == events[0].event_id:
                pass  # an earlier try had committed
            elif epoch is not None and not fenced:
                raise LeaseLostError(row.run_id, epoch)
            else:
                raise EventConflictError(row.run_id, expected=row.last_sequence, actual=now.last_sequence)
            return moved(row, change, row.last_sequence + len(events))

    def _store(self, run: _Run, events: Sequence[NewEvent], change: RunChange) -> RunRow:
        """Check everything, then write everything."""
        stored = [
            _Stored(new.event_id, new.event.type, to_text(new.event), meta_text(new.meta), new.recorded_at)
            for new in events
        ]
        rows = run.rows.after(events, check_target=self._run, check_token=self._check_token)
        row = moved(run.row, change, run.row.last_sequence + len(events))
        run.events.extend(stored)
        self._runs[row.run_id] = dataclasses.replace(run, row=row, rows=rows)
        return row

    def _check_token(self, run_id: str, token_digest: str) -> None:
        for hook in self._hooks():
            if hook.token_digest == token_digest and hook.run_id != run_id:
                raise HookTokenConflictError(owner_run_id=hook.run_id, owner_hook_id=hook.hook_id)

    def claim(self, run_id: str, *, lease: timedelta, unpinned_only: bool = False) -> RunRow | None:
        with self._lock:
            row, now = self._run(run_id).row, self.clock.now()
            leased = row.lease_expires_at is not None and row.lease_expires_at > now
            shut = row.status.is_terminal or row.paused_at is not None
            if shut or leased or (unpinned_only and row.build is not None):
                return None
            return self._move(
                row,
                lease_epoch=row.lease_epoch + 1,
                lease_expires_at=now + lease,
                lost_leases=row.lost_leases + (row.lease_expires_at is not None),
                wake_at=now + lease,
                wake_reason=WakeReason.DRIVING.value,
                dispatches=0,
            )

    def park(self, row: RunRow, *, change: RunChange) -> RunRow | None:
        with self._lock:
            now = self._run(row.run_id).row
            if (now.last_sequence, now.lease_epoch) != (row.last_sequence, row.lease_epoch):
                return None
            if (now.paused_at is None) != (row.paused_at is None):
                return None
            self._replace(moved(now, change, now.last_sequence))
            return moved(row, change, row.last_sequence)

    def renew(self, row: RunRow, *, lease: timedelta) -> bool:
        with self._lock:
            now = self._run(row.run_id).row
            if now.lease_epoch != row.lease_epoch or now.lease_expires_at is None:
                return False
            until = self.clock.now() + lease
            self._move(now, lease_expires_at=until, wake_at=until if now.paused_at is None else None)
            return True

    def take_due(self, *, limit: int, grace: timedelta) -> list[DueRun]:
        with self._lock:
            now = self.clock.now()
            rows = [run.row for run in self._runs.values()]
            due = [(row.wake_at, row.key, row) for row in rows if row.wake_at is not None and row.wake_at <= now]
            taken = []
            for _at, _key, row in sorted(due, key=lambda item: item[:2])[:limit]:
                if row.lease_expires_at is not None and row.lease_expires_at > now:
                    self._move(row, wake_at=row.lease_expires_at)
                    continue
                pause = put_off(row.wake_reason, row.lost_leases, grace)
                if pause is not None:
                    self._move(row, wake_at=now + pause, wake_reason=WakeReason.LOST.value)
                    continue
                again = now + grace_after(row.dispatches, grace)
                dispatched = WakeReason.DISPATCHED.value
                self._move(row, wake_at=again, wake_reason=dispatched, dispatches=row.dispatches + 1)
                taken.append(DueRun(row.run_id, row.build, row.wake_reason))
            return taken

    def due_builds(self) -> set[str | None]:
        now = self.clock.now()
        return {run.row.build for run in self._open() if run.row.wake_at is not None and run.row.wake_at <= now}

    def _move(self, row: RunRow, **columns: object) -> RunRow:
        return self._replace(dataclasses.replace(row, **columns))  # type: ignore[arg-type]

    def _replace(self, row: RunRow) -> RunRow:
        self._runs[row.run_id] = dataclasses.replace(self._runs[row.run_id], row=row)
        return row

    # --- reading ------------------------------------------------------------------------------------------------------

    def _run(self, run_id: str) -> _Run:
        run = self._runs.get(run_id)
        if run is None:
            raise RunNotFoundError(run_id)
        return run

    def row(self, run_id: str) -> RunRow:
        return self._run(run_id).row

    def lock(self, run_id: str) -> RunRow:
        return self._run(run_id).row

    def load(self, row: RunRow, *, after: int = 0) -> Iterable[Recorded]:
        return [Recorded(item.sequence, item.event, item.recorded_at) for item in self.history(row.run_id, after=after)]

    def history(self, run_id: str, *, after: int = 0) -> list[EventEnvelope]:
        with self._lock:
            stored = self._run(run_id).events[after:]
        return [
            EventEnvelope(
                run_id=run_id,
                sequence=sequence,
                event_id=item.event_id,
                recorded_at=item.recorded_at,
                event=read_event(run_id, sequence, item.type, item.payload, text_digest(item.payload)),
                meta=read_meta(item.meta),
            )
            for sequence, item in enumerate(stored, after + 1)
        ]

    def events_of_type(self, row: RunRow, event_type: str) -> list[EventEnvelope]:
        return [envelope for envelope in self.history(row.run_id) if envelope.type == event_type]

    def hook(self, row: RunRow | RunIdentity, hook_id: str) -> HookRow | None:
        return self._run(row.run_id).rows.hooks.get(hook_id)

    def active_hooks_by_token(self, token_digest: str) -> list[HookRow]:
        return [hook for hook in self.active_hooks() if hook.token_digest == token_digest]

    def active_hooks(self) -> list[HookRow]:
        return sorted(self._hooks(), key=lambda hook: (hook.run_id, hook.hook_id))

    def _hooks(self) -> Iterator[HookRow]:
        for run in self._open():
            yield from (hook for hook in run.rows.hooks.values() if hook.status is HookStatus.ACTIVE)

    def progress(self, row: RunRow, progress_id: str) -> Payload | None:
        return self._run(row.run_id).rows.progress.get(progress_id)

    def child_operation(self, row: RunRow, reference_id: str) -> Payload | None:
        return self._run(row.run_id).rows.children.get(reference_id)

    # --- many runs ----------------------------------------------------------------------------------------------------

    def _open(self) -> list[_Run]:
        with self._lock:
            return [run for run in self._runs.values() if not run.row.status.is_terminal]

    def run_ids(self) -> list[str]:
        return sorted(self._runs)

    def rows(self, *, suspended: bool = False, timer_due: datetime | None = None) -> Iterable[RunRow]:
        with self._lock:
            rows = [run.row for _id, run in sorted(self._runs.items())]
        if suspended:
            rows = [
                row for row in rows if _is_open(row) and (row.open_waits or row.active_hooks or row.pending_retries)
            ]
        if timer_due is not None:
            rows = [row for row in rows if _fires(row) and row.timer_at is not None and row.timer_at <= timer_due]
        return rows

    def summary(self) -> dict[str, int]:
        rows = list(self.rows())
        counts = {status.value: sum(row.status is status for row in rows) for status in RunStatus}
        for name in ("open_waits", "active_hooks", "pending_retries"):
            counts[name] = sum(getattr(row, name) for row in rows if _is_open(row))
        return counts

    def next_timer(self) -> datetime | None:
        rows = [run.row for run in self._open()]
        return min((row.timer_at for row in rows if _fires(row) and row.timer_at is not None), default=None)

    def next_wake(self) -> datetime | None:
        return min((run.row.wake_at for run in self._open() if run.row.wake_at is not None), default=None)


def _is_open(row: RunRow) -> bool:
    return not row.status.is_terminal


def _fires(row: RunRow) -> bool:
    """A paused run's timers keep their time and do not fire."""
    return _is_open(row) and row.paused_at is None
