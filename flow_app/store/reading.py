"""Reading: a run's row, its log, its hooks - and questions about many runs."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import TypeVar

from django.db.models import Count, Min, Model, QuerySet, Sum

from flow_app.core.events import EventEnvelope
from flow_app.core.payload import Payload
from flow_app.core.ports import HookRow, Recorded, RunIdentity, RunRow
from flow_app.core.snapshot import HookStatus, RunStatus
from flow_app.errors import RunNotFoundError
from flow_app.models import ChildOperation, Hook, Progress, Run
from flow_app.models.hook import HookQuerySet
from flow_app.models.keys import text_key
from flow_app.store import statements
from flow_app.store.records import read_envelopes, read_payload, read_recorded
from flow_app.store.rows import RUN_FIELDS, read_run
from flow_app.store.transactions import Transactions

M = TypeVar("M", bound=Model)


class Reading(Transactions):
    # --- one run ------------------------------------------------------------------------------------------------------

    def row(self, run_id: str) -> RunRow:
        return self._select_run(run_id, suffix=self.latest)

    def lock(self, run_id: str) -> RunRow:
        """The row, locked until the transaction ends; on SQLite the transaction itself is the lock."""
        return self._select_run(run_id, suffix=self.dialect.for_update)

    def _select_run(self, run_id: str, *, suffix: str) -> RunRow:
        rows = self.fetch(statements.select_run(self.dialect, suffix=suffix), (text_key(run_id),))
        if not rows:
            raise RunNotFoundError(run_id)
        return read_run(rows[0])

    def load(self, row: RunRow, *, after: int = 0) -> Iterable[Recorded]:
        """The events after a sequence, in order; inside a transaction as they are now, not as it began."""
        sql = statements.select_events(self.dialect, whole=False, suffix=self.latest)
        return read_recorded(row.run_id, self.fetch(sql, (row.key, after)))

    def history(self, run_id: str, *, after: int = 0) -> list[EventEnvelope]:
        sql = statements.select_events(self.dialect, whole=True, suffix=self.latest)
        return read_envelopes(run_id, self.fetch(sql, (self.row(run_id).key, after)))

    def events_of_type(self, row: RunRow, event_type: str) -> list[EventEnvelope]:
        sql = statements.select_events(self.dialect, whole=True, typed=True, suffix=self.latest)
        return read_envelopes(row.run_id, self.fetch(sql, (row.key, 0, event_type)))

    def progress(self, row: RunRow, progress_id: str) -> Payload | None:
        found = self._now(Progress.objects.using(self.using).filter(run_id=row.key).with_id(progress_id)).first()
        return None if found is None else read_payload(found.body)

    def child_operation(self, row: RunRow, reference_id: str) -> Payload | None:
        links = ChildOperation.objects.using(self.using).filter(run_id=row.key).with_id(reference_id)
        found = self._now(links).first()
        return None if found is None else read_payload(found.body)

    # --- hooks --------------------------------------------------------------------------------------------------------

    def hook(self, row: RunRow | RunIdentity, hook_id: str) -> HookRow | None:
        found = self._now(Hook.objects.using(self.using).filter(run_id=row.key).with_id(hook_id)).first()
        return None if found is None else _hook_row(found, row.run_id)

    def active_hooks_by_token(self, token_digest: str) -> list[HookRow]:
        return self._active(Hook.objects.using(self.using).with_token(token_digest).active())

    def active_hooks(self) -> list[HookRow]:
        return self._active(Hook.objects.using(self.using).active())

    def _active(self, hooks: HookQuerySet) -> list[HookRow]:
        rows = [_hook_row(hook, hook.run.run_id) for hook in self._now(hooks.with_runs())]
        return sorted(rows, key=lambda hook: (hook.run_id, hook.hook_id))  # collations order text each in their way

    # --- many runs ----------------------------------------------------------------------------------------------------

    def run_ids(self) -> list[str]:
        return sorted(Run.objects.using(self.using).values_list("run_id", flat=True))

    def rows(self, *, suspended: bool = False, timer_due: datetime | None = None) -> Iterable[RunRow]:
        runs = Run.objects.using(self.using).all()
        if suspended:
            runs = runs.suspended()
        if timer_due is not None:
            runs = runs.timer_due(timer_due)
        return sorted(map(read_run, runs.values_list(*RUN_FIELDS)), key=lambda row: row.run_id)

    def summary(self) -> dict[str, int]:
        runs = Run.objects.using(self.using).order_by()
        counts = dict(runs.values_list("status").annotate(Count("id")))
        opened = ("open_waits", "active_hooks", "pending_retries")
        sums = runs.open().aggregate(**{f"sum_{name}": Sum(name) for name in opened})
        return {
            **{status.value: counts.get(status.value, 0) for status in RunStatus},
            **{name: sums[f"sum_{name}"] or 0 for name in opened},
        }

    def next_timer(self) -> datetime | None:
        runs = Run.objects.using(self.using).open().awake()
        earliest: datetime | None = runs.aggregate(at=Min("timer_at"))["at"]
        return earliest

    def next_wake(self) -> datetime | None:
        """Only open runs that are not paused have one."""
        return self.first_instant(statements.select_first_wake(self.dialect, statements.RUN))

    def _now(self, rows: QuerySet[M]) -> QuerySet[M]:
        """See what others committed since the transaction began, where a plain read would not."""
        return rows.select_for_update() if self.latest else rows


def _hook_row(hook: Hook, run_id: str) -> HookRow:
    return HookRow(
        run_id=run_id,
        hook_id=hook.hook_id,
        token_digest=hook.token_digest,
        status=HookStatus(hook.status),
        metadata=read_payload(hook.metadata),
        expires_at=hook.expires_at,
        received=None if hook.received is None else read_payload(hook.received),
    )
