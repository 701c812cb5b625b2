# ruff: noqa: S608 - the SQL is put together from names in this package; every value is a parameter
"""Steps that are out with the workers: see :class:`flow_app.core.remote.StepStore`.

Every statement finds its rows by key. Whoever makes or deletes them has the run's row locked, so ``Run.steps_out`` and
the log agree with them; workers and the scheduler, who have not, change only how an attempt is taken and looked after.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any
from uuid import uuid4

from flow_app.core.ports import RunRow
from flow_app.core.remote import DueStep, NewStep, StepOut
from flow_app.models import StepExecution
from flow_app.models.keys import text_key
from flow_app.store import chunks
from flow_app.store.leasing import grace_after
from flow_app.store.one_statement import OneStatement
from flow_app.store.statements import RUN, STEP, select_first_wake
from flow_app.store.step_rows import IN_TIME, READ, execution, step_out


class Travelling(OneStatement):
    # --- the drive ----------------------------------------------------------------------------------------------------

    def send_steps(self, row: RunRow, steps: Sequence[NewStep], *, grace: timedelta) -> None:
        """An append that is tried again, because nobody heard that it had committed, finds its notes there."""
        wake_at = self.clock.now() + grace
        rows = [execution(row, step, wake_at) for step in steps]
        chunks.insert(StepExecution.objects.using(self.using), rows, payload="input", ignore_conflicts=True)

    def steps_out(self, row: RunRow) -> set[str]:
        found = self.fetch(f"SELECT step_id FROM {STEP} WHERE run_id = %s{self.latest}", (row.key,))
        return {step_id for (step_id,) in found}

    def recall_steps(self, row: RunRow) -> int:
        """A worker that takes an attempt at this moment is either before both statements, or finds it gone."""
        self.execute(f"DELETE FROM {STEP} WHERE run_id = %s AND deliveries = 0", (row.key,))
        return self.execute(f"UPDATE {STEP} SET late = %s WHERE run_id = %s", (True, row.key))

    def wake_steps(self, row: RunRow) -> None:
        now = self.dialect.moment(self.clock)
        self.execute(
            f"UPDATE {STEP} SET wake_at = {now.sql}, dispatches = 0 "
            f"WHERE run_id = %s AND (lease_expires_at IS NULL OR lease_expires_at <= {now.sql})",
            (*now.params, row.key, *now.params),
        )

    # --- the worker ---------------------------------------------------------------------------------------------------

    def find_step(self, run_id: str, step_id: str) -> StepOut | None:
        now = self.dialect.moment(self.clock)
        found = self.fetch(
            f"SELECT CASE WHEN e.lease_expires_at > {now.sql} THEN 1 ELSE 0 END, "
            f"CASE WHEN e.times_out_at <= {now.sql} THEN 1 ELSE 0 END, "
            f"CASE WHEN r.paused_at IS NULL THEN 0 ELSE 1 END, {READ} "
            f"FROM {RUN} r JOIN {STEP} e ON e.run_id = r.id WHERE r.run_key = %s AND e.step_key = %s",
            (*now.params, *now.params, text_key(run_id), text_key(step_id)),
        )
        return step_out(found[0]) if found else None

    def claim_step(self, step: StepOut, *, lease: timedelta, worker: str, durable: bool = False) -> StepOut | None:
        """The time of an attempt that is over stays over, whoever takes it then."""
        now, until = self.dialect.moment(self.clock), self.dialect.after(self.clock, lease)
        look, columns = until, [("lease_expires_at", until)]
        if step.timeout is not None and not step.timed_out:
            deadline = self.dialect.after(self.clock, step.timeout)
            columns.append(("times_out_at", deadline))
            look = until if lease <= step.timeout else deadline
        columns.append(("wake_at", look))
        token = uuid4().hex
        sql = (
            f"UPDATE {STEP} SET fencing_token = %s, worker = %s, deliveries = deliveries + 1, dispatches = 0, "
            f"{', '.join(f'{name} = {moment.sql}' for name, moment in columns)} "
            f"WHERE id = %s AND attempt = %s AND fencing_token = %s AND late = %s "
            f"AND (lease_expires_at IS NULL OR lease_expires_at <= {now.sql} OR times_out_at <= {now.sql})"
            f" AND {'1 = 1' if durable else self.dialect.unhurried}"
        )
        moments = [value for _, moment in columns for value in moment.params]
        key = (step.key, step.attempt, step.token, step.late)
        params = (token, worker[:200], *moments, *key, *now.params, *now.params)
        claimed = self.attempt(lambda: self.execute(sql, params))
        return replace(step, token=token, deliveries=step.deliveries + 1, held=True) if claimed else None

    def renew_step(self, step: StepOut, *, lease: timedelta) -> bool:
        now, until = self.dialect.moment(self.clock), self.dialect.after(self.clock, lease)
        sql = (
            f"UPDATE {STEP} SET lease_expires_at = {until.sql}, "
            f"wake_at = CASE WHEN times_out_at < {until.sql} THEN times_out_at ELSE {until.sql} END "
            f"WHERE id = %s AND fencing_token = %s AND {IN_TIME.format(now=now.sql)}"
        )
        params = (*until.params, *until.params, *until.params, step.key, step.token, *now.params)
        return self.attempt(lambda: self.execute(sql, params)) > 0

    def close_step(self, step: StepOut, *, overdue: bool) -> bool:
        fence, params = self._fence(step, overdue=overdue)
        return self.execute(f"DELETE FROM {STEP} WHERE {fence}", params) > 0

    def resend_step(self, step: StepOut, *, grace: timedelta, overdue: bool) -> bool:
        fence, params = self._fence(step, overdue=overdue)
        again = self.dialect.after(self.clock, grace)
        sql = (
            f"UPDATE {STEP} SET attempt = attempt + 1, fencing_token = '', worker = '', deliveries = 0, "
            f"dispatches = 0, lease_expires_at = NULL, times_out_at = NULL, wake_at = {again.sql} WHERE {fence}"
        )
        return self.execute(sql, (*again.params, *params)) > 0

    def _fence(self, step: StepOut, *, overdue: bool) -> tuple[str, tuple[Any, ...]]:
        fence, params = "id = %s AND fencing_token = %s", (step.key, step.token)
        if overdue or step.timeout is None:
            return fence, params
        now = self.dialect.moment(self.clock)
        return f"{fence} AND {IN_TIME.format(now=now.sql)}", (*params, *now.params)

    def step_is_late(self, step: StepOut) -> bool:
        found = self.fetch(f"SELECT late FROM {STEP} WHERE id = %s{self.latest}", (step.key,))
        return bool(found and found[0][0])

    # --- the scheduler ------------------------------------------------------------------------------------------------

    def take_due_steps(self, *, limit: int, grace: timedelta) -> list[DueStep]:
        now = self.dialect.moment(self.clock)
        due = self.fetch(
            f"SELECT id, run_id, step_id, attempt, queue, dispatches FROM {STEP} "
            f"WHERE wake_at <= {now.sql} ORDER BY wake_at, id LIMIT %s{self._locking}",
            (*now.params, limit),
        )
        if not due:
            return []
        by_dispatches: dict[int, list[int]] = defaultdict(list)
        for key, *_, dispatches in due:
            by_dispatches[dispatches].append(key)
        for dispatches, keys in sorted(by_dispatches.items()):
            again = self.dialect.after(self.clock, grace_after(dispatches, grace))
            where, params = self.dialect.among(keys)
            self.execute(
                f"UPDATE {STEP} SET wake_at = {again.sql}, dispatches = dispatches + 1 WHERE {where}",
                (*again.params, *params),
            )
        runs = self._running({row[1] for row in due})
        return [
            DueStep(runs[run_key][0], step_id, attempt, runs[run_key][1], queue)
            for _key, run_key, step_id, attempt, queue, _dispatches in due
            if run_key in runs
        ]

    def _running(self, keys: set[int]) -> dict[int, tuple[str, str | None]]:
        """Id and build of those runs that are not paused."""
        where, params = self.dialect.among(sorted(keys))
        rows = self.fetch(f"SELECT id, run_id, build FROM {RUN} WHERE paused_at IS NULL AND {where}", params)
        return {key: (run_id, build) for key, run_id, build in rows}

    def next_step_wake(self) -> datetime | None:
        return self.first_instant(select_first_wake(self.dialect, STEP))
