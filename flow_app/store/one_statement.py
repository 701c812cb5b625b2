# ruff: noqa: S608 - the SQL is put together from names in this package; every value is a parameter
"""Steps that travel, on PostgreSQL: sent, taken and completed in one statement each.

Workers of one batch lock its run's row for the time of one statement instead of five. Elsewhere, and where something is
in the way, the methods answer None, and nothing is done.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from datetime import timedelta
from functools import lru_cache
from uuid import uuid4

from django.db.utils import DataError

from flow_app.core.ports import NewEvent, RunChange, RunRow, WakeReason
from flow_app.core.remote import Awaited, Closed, NewStep, StepOut
from flow_app.core.snapshot import RunStatus
from flow_app.core.spec import RuntimeBuildCompatibility
from flow_app.errors import StoreError
from flow_app.models.keys import text_key
from flow_app.store import chunks
from flow_app.store.appending import Appending
from flow_app.store.dialects import Dialect
from flow_app.store.leasing import Leasing
from flow_app.store.projections import leaves_rows
from flow_app.store.records import EVENT_COLUMNS, values_of
from flow_app.store.rows import columns_of, moved
from flow_app.store.statements import EVENT, EVENT_TYPES, RUN, STEP, move
from flow_app.store.step_rows import IN_TIME, READ, SENT, sent_values, step_out


class OneStatement(Appending, Leasing):
    def append_and_send(
        self,
        row: RunRow,
        events: Sequence[NewEvent],
        steps: Sequence[NewStep],
        *,
        change: RunChange,
        epoch: int,
        grace: timedelta,
    ) -> RunRow | None:
        if not self.dialect.has_writing_cte or leaves_rows(events, active_hooks=row.active_hooks):
            return None
        if sum(len(step.input.text) for step in steps) > chunks.MOST_TEXT:
            return None
        columns, values = columns_of(change, self.dialect)
        last, again = row.last_sequence + len(events), self.dialect.after(self.clock, grace)
        logged = values_of(events, after=row.last_sequence, dialect=self.dialect, native_uuid=False)
        params = (
            last, *values, row.key, row.last_sequence, epoch,
            *(logged[index :: len(EVENT_COLUMNS)] for index in range(len(EVENT_COLUMNS))),
            *again.params, *map(list, zip(*map(sent_values, steps), strict=True)),
        )  # fmt: skip
        if not self.attempt(lambda: self.fetch(_send(columns, again.sql), params)):
            self._explain_refusal(row, events, epoch=epoch)
        return moved(row, change, last)

    def take_step(
        self,
        run_id: str,
        step_id: str,
        attempt: int,
        *,
        names: Collection[str],
        builds: RuntimeBuildCompatibility | None,
        lease: timedelta,
        worker: str,
    ) -> StepOut | None:
        if not self.dialect.has_writing_cte:
            return None
        now, until = self.dialect.moment(self.clock), self.dialect.after(self.clock, lease)
        admitted = [] if builds is None else [builds.current, *builds.compatible]
        params = (
            uuid4().hex, worker[:200], *until.params, *now.params, *until.params, *now.params,
            text_key(run_id), text_key(step_id), attempt, builds is None or builds.unpinned, admitted, list(names),
            *now.params, *now.params,
        )  # fmt: skip
        taken = self.attempt(lambda: self.fetch(_take(self.dialect, now.sql, until.sql), params))
        return step_out((1, 0, 0, *taken[0])) if taken else None

    def complete_step(self, step: StepOut, completed: NewEvent) -> Closed | None:
        if not self.dialect.has_writing_cte:
            return None
        now = self.dialect.moment(self.clock)
        _sequence, *event = values_of([completed], after=0, dialect=self.dialect, native_uuid=False)
        mine = (step.key, step.token)
        params = (*now.params, step.run.key, *mine, *now.params, *event, *mine)
        try:
            closed = self.attempt(lambda: self.fetch(_complete(now.sql), params))
        except StoreError as error:
            if isinstance(error.__cause__, DataError):
                return None  # somebody has taken the attempt over, and all is undone
            raise
        return Closed(*closed[0][:2]) if closed else None


@lru_cache(maxsize=256)
def _send(columns: tuple[str, ...], again: str) -> str:
    """Parameters: those of a fenced move, an array for each column of events, again, an array for each column of steps.

    Arrays, because psycopg prepares no statement of more than 50 parameters; and one text, however many there are.
    """
    events, steps = ", ".join(EVENT_COLUMNS), ", ".join(SENT)
    return (
        f"WITH moved AS ({move(columns, fenced=True)} RETURNING id), "
        f"logged AS (INSERT INTO {EVENT} (run_id, {events}) "
        f"SELECT moved.id, v.* FROM moved CROSS JOIN unnest({_arrays(EVENT_TYPES)}) AS v ({events})), "
        f"sent AS (INSERT INTO {STEP} (run_id, fencing_token, worker, deliveries, late, dispatches, wake_at, {steps}) "
        f"SELECT moved.id, '', '', 0, false, 0, {again}, v.* "
        f"FROM moved CROSS JOIN unnest({_arrays(SENT.values())}) AS v ({steps}) "
        "ON CONFLICT (run_id, step_key) DO NOTHING) "
        "SELECT id FROM moved"
    )


def _arrays(types: Iterable[str]) -> str:
    return ", ".join(f"%s::{name}[]" for name in types)


@lru_cache(maxsize=8)
def _take(dialect: Dialect, now: str, until: str) -> str:
    """Parameters: token, worker, until, now, until, now, keys of the run and the step, attempt, whether unpinned runs
    may be, builds, names, now, now.
    """
    deadline = f"CAST({now} AS timestamptz) + e.timeout_ms * INTERVAL '1 millisecond'"  # NULL without a time limit
    until = f"CAST({until} AS timestamptz)"
    return (
        f"UPDATE {STEP} e SET fencing_token = %s, worker = %s, deliveries = e.deliveries + 1, dispatches = 0, "
        f"lease_expires_at = {until}, times_out_at = {deadline}, wake_at = LEAST({until}, {deadline}) "
        f"FROM {RUN} r WHERE r.run_key = %s AND e.run_id = r.id AND e.step_key = %s AND e.attempt = %s "
        "AND r.paused_at IS NULL AND ((r.build IS NULL AND %s) OR r.build = ANY(%s)) AND e.step_name = ANY(%s) "
        f"AND (e.lease_expires_at IS NULL OR e.lease_expires_at <= {now}) AND {IN_TIME.format(now=now)}"
        f" AND {dialect.unhurried} RETURNING {READ}"
    )


@lru_cache(maxsize=8)
def _complete(now: str) -> str:
    """Parameters: now, the keys of the run and the step, token, now, the event's values but its sequence, key, token.

    The run's row is written first, as by everybody who writes to both. A worker that has been taken over meanwhile
    finds its attempt gone by then, and undoes all by dividing by zero. To lock both rows first would be a second look
    at each, and members of a batch that end together look twice as it is.
    """
    wakes = f"r.lease_expires_at IS NULL AND (r.steps_out = 1 OR r.steps_awaited = '{Awaited.ANY.value}')"
    idle = f"r.paused_at IS NULL AND r.status IN ('{RunStatus.RUNNING.value}', '{RunStatus.SUSPENDED.value}')"
    unhinted = f"(r.lease_expires_at IS NOT NULL OR r.steps_awaited <> '{Awaited.NONE.value}')"
    mine = "e.id = %s AND e.fencing_token = %s"
    return (
        f"WITH moved AS (UPDATE {RUN} r SET last_sequence = r.last_sequence + 1, steps_out = r.steps_out - 1, "
        f"wake_at = CASE WHEN {wakes} THEN LEAST(r.wake_at, {now}) ELSE r.wake_at END, "
        f"wake_reason = CASE WHEN {wakes} THEN '{WakeReason.RUNNABLE.value}' ELSE r.wake_reason END, "
        f"steps_awaited = CASE WHEN {wakes} THEN '{Awaited.NONE.value}' ELSE r.steps_awaited END "
        f"FROM {STEP} e WHERE r.id = %s AND e.run_id = r.id AND {mine} AND {IN_TIME.format(now=now)} "
        f"AND {idle} AND {unhinted} RETURNING r.id, r.last_sequence, "
        f"r.lease_expires_at IS NULL AND r.steps_awaited = '{Awaited.NONE.value}' AS wakes), "
        f"logged AS (INSERT INTO {EVENT} (run_id, {', '.join(EVENT_COLUMNS)}) "
        f"SELECT moved.id, moved.last_sequence, {', '.join(f'%s::{name}' for name in EVENT_TYPES[1:])} FROM moved), "
        f"gone AS (DELETE FROM {STEP} e USING moved WHERE e.run_id = moved.id AND {mine} RETURNING 1) "
        "SELECT last_sequence, wakes, 1 / (SELECT count(*) FROM gone) FROM moved"
    )
