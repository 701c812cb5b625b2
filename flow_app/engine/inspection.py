"""Reading runs: one of them whole, many of them by what they wait for."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

from flow_app.core.ports import RunRow
from flow_app.core.projection import evolve
from flow_app.core.snapshot import RunStatus, WorkflowRunSnapshot
from flow_app.core.state import RunState
from flow_app.engine.services import Services

_KINDS = ("wait", "hook", "retry")


@dataclass(frozen=True, slots=True)
class Suspension:
    """Something open in a run. ``kind`` is wait, hook or retry; ``due_at`` is None for a hook, which is never due."""

    run_id: str
    kind: str
    subject_id: str
    due_at: datetime | None
    is_due: bool


@dataclass(frozen=True, slots=True)
class ScheduledWakeup:
    """A timer or a delayed retry of an open run."""

    run_id: str
    kind: str
    subject_id: str
    scheduled_at: datetime
    runtime_build_id: str | None


def load_state(services: Services, row: RunRow) -> RunState:
    """Fold a run's whole history."""
    state = RunState(row.run_id)
    for recorded in services.store.load(row):
        evolve(state, recorded)
    return state


def snapshot(services: Services, run_id: str) -> WorkflowRunSnapshot:
    return load_state(services, services.store.row(run_id)).snapshot()


def snapshots(services: Services) -> Iterator[WorkflowRunSnapshot]:
    for row in services.store.rows():
        yield load_state(services, row).snapshot()


def summary(services: Services) -> dict[str, int]:
    """The store's counts, and their sums over ended and open runs."""
    counts = services.store.summary()
    terminal = sum(counts[status] for status in RunStatus if status.is_terminal)
    total = sum(counts[status] for status in RunStatus)
    return {"total": total, **counts, "terminal": terminal, "non_terminal": total - terminal}


def open_suspensions(services: Services, now: datetime) -> list[Suspension]:
    """Everything open in open runs, sorted by run, then wait before hook before retry, then id."""
    found = [
        Suspension(row.run_id, kind, subject_id, due_at, due_at is not None and due_at <= now)
        for row in services.store.rows(suspended=True)
        for kind, subject_id, due_at in _open(load_state(services, row))
    ]
    return sorted(found, key=lambda item: (item.run_id, _KINDS.index(item.kind), item.subject_id))


def _open(state: RunState) -> Iterator[tuple[str, str, datetime | None]]:
    for wait_id in state.open_waits:
        yield "wait", wait_id, state.waits[wait_id].resume_at
    for hook_id in state.active_hooks:
        yield "hook", hook_id, None
    for step_id in state.delayed_steps:
        yield "retry", step_id, state.steps[step_id].retry_after


def due_wakeups(services: Services, now: datetime) -> list[ScheduledWakeup]:
    """Timers and retries due at ``now``, waits before retries, then by run and id."""
    rows = services.store.rows(timer_due=now)
    found = [item for row in rows for item in _timed(services, row) if item.scheduled_at <= now]
    return sorted(found, key=lambda item: (_KINDS.index(item.kind), item.run_id, item.subject_id))


def _timed(services: Services, row: RunRow) -> Iterator[ScheduledWakeup]:
    for kind, subject_id, due_at in _open(load_state(services, row)):
        if due_at is not None:
            yield ScheduledWakeup(row.run_id, kind, subject_id, due_at, row.build)


def list_due_waits(services: Services, now: datetime) -> list[tuple[str, str]]:
    return [(item.run_id, item.subject_id) for item in due_wakeups(services, now) if item.kind == "wait"]


def list_due_retries(services: Services, now: datetime) -> list[tuple[str, str]]:
    return [(item.run_id, item.subject_id) for item in due_wakeups(services, now) if item.kind == "retry"]


def next_wakeup(services: Services) -> ScheduledWakeup | None:
    """The earliest timer or retry of all open runs, overdue ones included; hooks do not count."""
    store = services.store
    earliest = store.next_timer()
    if earliest is None:
        return None
    found = [item for row in store.rows(timer_due=earliest) for item in _timed(services, row)]
    best = min(found, key=_order, default=None)
    if best is not None and best.scheduled_at == earliest:
        return best
    # What is earliest is a hook's deadline: look behind it, at histories only as far as they can be earlier.
    rows = [row for row in store.rows(suspended=True) if row.paused_at is None]
    timers = [(row.timer_at, row) for row in rows if row.timer_at is not None]
    for timer_at, row in sorted(timers, key=lambda item: item[0]):
        if best is not None and timer_at > best.scheduled_at:
            break
        best = min([*_timed(services, row), *([best] if best else [])], key=_order, default=None)
    return best


def _order(item: ScheduledWakeup) -> tuple[datetime, str, int, str]:
    return item.scheduled_at, item.run_id, _KINDS.index(item.kind), item.subject_id
