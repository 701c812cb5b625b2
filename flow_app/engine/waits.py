"""Timers and delayed retries, completed from outside the drive."""

from __future__ import annotations

from datetime import datetime

from flow_app.core import events as ev
from flow_app.core.identifiers import check_id
from flow_app.core.ports import RunRow
from flow_app.core.snapshot import WaitStatus
from flow_app.engine import folded
from flow_app.engine.drive import drive
from flow_app.engine.inspection import list_due_retries, list_due_waits, load_state
from flow_app.engine.services import Meta, Services
from flow_app.errors import InvalidTransitionError, RunTerminalError


def resume(services: Services, run_id: str, wait_id: str, *, meta: Meta | None = None) -> bool:
    """Complete a wait, due or not; True when this call did. See :meth:`FlowEngine.resume_wait`."""
    check_id(wait_id, what="wait id")
    row, completed = services.store.transact(lambda: _complete(services, run_id, wait_id, meta))
    if not row.status.is_terminal:
        services.dispatch_drive(run_id, row.build)
    return completed


def _complete(services: Services, run_id: str, wait_id: str, meta: Meta | None) -> tuple[RunRow, bool]:
    """Complete the wait unless it is completed or the run has ended; was it done?"""
    row = services.store.lock(run_id)
    state = load_state(services, row)
    wait = state.waits.get(wait_id)
    if wait is None:
        if row.status.is_terminal:
            raise RunTerminalError(run_id, "timers")
        raise InvalidTransitionError(f"wait {wait_id!r} was never created", run_id=run_id)
    if row.status.is_terminal:
        return row, False
    services.admit(run_id, row.build, or_routed=True)
    completes = wait.status is WaitStatus.WAITING
    if completes:
        folded.append(services, row, state, ev.WaitCompleted(wait_id), meta=meta)
    return row, completes


def resume_due(services: Services, now: datetime) -> list[tuple[str, str]]:
    """Complete every wait due at ``now``; returns the pairs that this call completed, sorted."""
    return [pair for pair in list_due_waits(services, now) if resume(services, *pair)]


def resume_due_retries(services: Services, now: datetime) -> list[tuple[str, str]]:
    """Drive, once each, the runs that have a retry due at ``now``; returns the due pairs this call started, sorted."""
    due = list_due_retries(services, now)
    started = {
        (wakeup.run_id, wakeup.subject_id)
        for run_id in dict.fromkeys(run_id for run_id, _ in due)
        for wakeup in drive(services, run_id, now=now)
        if wakeup.kind == "retry"
    }
    return [pair for pair in due if pair in started]
