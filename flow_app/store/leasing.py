# ruff: noqa: S608 - the SQL is put together from names in this package; every value is a parameter
"""The lease and the wake-up: what stands on a run's row and is not history."""

from __future__ import annotations

from collections import defaultdict
from datetime import UTC, timedelta
from typing import Any, NamedTuple

from flow_app.core.ports import DueRun, RunChange, RunRow, WakeReason
from flow_app.errors import RunNotFoundError
from flow_app.models import Run
from flow_app.models.keys import text_key
from flow_app.store import statements
from flow_app.store.clock import DatabaseClock
from flow_app.store.rows import columns_of, moved, read_run
from flow_app.store.transactions import Transactions

#: A run that nobody takes is hinted at ever more seldom, but at least this often.
LONGEST_GRACE = timedelta(minutes=10)
#: Workers that a run may lose in a row before it is put off: what a step does is ended as "worker lost" by then.
MANY_LOSSES = 5


def grace_after(dispatches: int, grace: timedelta) -> timedelta:
    """How long to wait for a worker before the next hint: ``grace`` x 2^dispatches, at most ten minutes."""
    return min(grace * (1 << min(dispatches, 20)), max(LONGEST_GRACE, grace))


def put_off(reason: str, lost_leases: int, grace: timedelta) -> timedelta | None:
    """How long a run is left alone whose worker has just died, and many before it; None: not at all."""
    if reason != WakeReason.DRIVING or lost_leases < MANY_LOSSES:
        return None
    return grace_after(lost_leases - MANY_LOSSES, grace)


class _Due(NamedTuple):
    key: int
    run_id: str
    build: str | None
    reason: str
    dispatches: int
    lost_leases: int
    leased: int


class Leasing(Transactions):
    def claim(self, run_id: str, *, lease: timedelta, unpinned_only: bool = False) -> RunRow | None:
        """Take the lease of an open run that is not paused; an expired one is taken over, and counted."""
        now, until = self.dialect.moment(self.clock), self.dialect.after(self.clock, lease)
        key = text_key(run_id)
        params = (*until.params, *until.params, key, *now.params)

        sql = statements.claim(self.dialect, now.sql, until.sql, unpinned_only=unpinned_only)

        def take() -> list[tuple[Any, ...]]:
            if self.dialect.has_writing_cte:
                return self.fetch(statements.returning_claimed(self.dialect, sql), params)
            with self.atomic(savepoint=False):
                if not self.execute(sql, params):
                    return []
                return self.fetch(statements.select_claimed(self.dialect), (key,))

        rows = self.attempt(take)
        if not rows:
            self._refuse_unknown(run_id)
            return None
        *values, database_now = rows[0]
        if isinstance(self.clock, DatabaseClock):
            self.clock.calibrate(database_now.replace(tzinfo=UTC))
        return read_run(values)

    def park(self, row: RunRow, *, change: RunChange) -> RunRow | None:
        """Change the row, unless an event, another driver, a pause or its end has come in between."""
        columns, values = columns_of(change, self.dialect)
        params = [*values, row.key, row.last_sequence, row.lease_epoch]
        sql = statements.park(columns, paused=row.paused_at is not None)
        if not self.attempt(lambda: self.execute(sql, params)):
            return None
        return moved(row, change, row.last_sequence)

    def renew(self, row: RunRow, *, lease: timedelta) -> bool:
        until = self.dialect.after(self.clock, lease)
        params = (*until.params, *until.params, row.key, row.lease_epoch)
        return self.attempt(lambda: self.execute(statements.renew(until.sql), params)) > 0

    def take_due(self, *, limit: int, grace: timedelta) -> list[DueRun]:
        """Runs that are due, each moved on to when it is due again if nobody takes it."""
        rows = self._due(limit)
        driven = [row.key for row in rows if row.leased]
        if driven:  # the driver extended its lease and left wake_at behind: it needs no hint
            these, keys = self.dialect.among(driven)
            self.execute(f"UPDATE {statements.RUN} SET wake_at = lease_expires_at WHERE {these}", keys)
        taken, moves = [], defaultdict(list)
        for row in rows:
            if row.leased:
                continue
            pause = put_off(row.reason, row.lost_leases, grace)
            if pause is None:
                taken.append(DueRun(row.run_id, row.build, row.reason))
                moves[grace_after(row.dispatches, grace), WakeReason.DISPATCHED].append(row.key)
            else:
                moves[pause, WakeReason.LOST].append(row.key)
        for (delay, reason), waiting in sorted(moves.items()):
            self._move_on(waiting, delay, reason)
        return taken

    def _due(self, limit: int) -> list[_Due]:
        now = self.dialect.moment(self.clock)
        sql = statements.select_due(now.sql, locking=self._locking)
        return [_Due(*values) for values in self.fetch(sql, (*now.params, *now.params, limit))]

    def _move_on(self, keys: list[int], delay: timedelta, reason: WakeReason) -> None:
        again = self.dialect.after(self.clock, delay)
        these, params = self.dialect.among(keys)
        hinted = ", dispatches = dispatches + 1" if reason is WakeReason.DISPATCHED else ""
        self.execute(
            f"UPDATE {statements.RUN} SET wake_at = {again.sql}, wake_reason = %s{hinted} WHERE {these}",
            (*again.params, reason.value, *params),
        )

    def due_builds(self) -> set[str | None]:
        now = self.dialect.moment(self.clock)
        return {build for (build,) in self.fetch(statements.select_due_builds(now.sql), (*now.params, *now.params))}

    @property
    def _locking(self) -> str:
        if not self.dialect.for_update:
            return ""
        skip = self.connection.features.has_select_for_update_skip_locked
        return self.dialect.for_update + (" SKIP LOCKED" if skip else "")

    def _refuse_unknown(self, run_id: str) -> None:
        if not Run.objects.using(self.using).with_id(run_id).exists():
            raise RunNotFoundError(run_id)
