"""Ending a run: by request, so that it can clean up, or at once."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from flow_app.core import decider, instants
from flow_app.core import events as ev
from flow_app.core.policy import CancellationRequest, check_reason
from flow_app.core.ports import RunChange, RunRow
from flow_app.core.snapshot import OutcomeType, RunStatus
from flow_app.engine import rows
from flow_app.engine.services import Meta, Services
from flow_app.errors import RunConflictError


def request(services: Services, run_id: str, *, reason: str | None, meta: Meta | None = None) -> bool:
    """Record the one cancellation request of a run; True when this call did. See FlowEngine.request_cancellation."""
    asked = CancellationRequest(check_reason(reason))
    row, recorded = services.store.transact(lambda: _record(services, run_id, asked, meta))
    if not row.status.is_terminal:
        services.dispatch_drive(run_id, row.build)
    return recorded


def _record(services: Services, run_id: str, asked: CancellationRequest, meta: Meta | None) -> tuple[RunRow, bool]:
    """Record the request unless it is recorded or the run has ended; was it done?"""
    row = services.store.lock(run_id)
    if row.status.is_terminal:
        return row, False
    repeated = row.status is RunStatus.CANCELLING
    if repeated:
        _check_same(services, row, asked)
    services.admit(run_id, row.build, or_routed=True)
    if not repeated:
        services.append(row, (ev.RunCancellationRequested(asked),), change=_cancelling(services, row), meta=meta)
    return row, not repeated


def _check_same(services: Services, row: RunRow, asked: CancellationRequest) -> None:
    event: Any = services.store.events_of_type(row, ev.RunCancellationRequested.type)[0].event
    conflict = decider.cancellation_conflict(event.request, asked)
    if conflict is not None:
        raise RunConflictError(row.run_id, conflict)


def _cancelling(services: Services, row: RunRow) -> RunChange:
    """Everything open is cancelled by the request; the run is to be driven at once."""
    change = rows.runnable(row, now=services.store.clock.now())
    store = services.step_store
    if row.steps_out and store is not None:
        change["steps_out"] = store.recall_steps(row)
    closed = RunChange(status=RunStatus.CANCELLING, open_waits=0, active_hooks=0, pending_retries=0, timer_at=None)
    return change | closed


def force_cancel(services: Services, run_id: str, *, reason: str | None, meta: Meta | None = None) -> bool:
    event = ev.RunCancelled(check_reason(reason))
    ending = (RunStatus.CANCELLED, OutcomeType.CANCELLED, event.reason)
    return _terminate(services, run_id, event, *ending, meta=meta)


def time_out(
    services: Services, run_id: str, *, deadline: datetime, reason: str | None, meta: Meta | None = None
) -> bool:
    event = ev.RunTimedOut(instants.utc(deadline, what="timeout deadline"), check_reason(reason))
    return _terminate(services, run_id, event, RunStatus.FAILED, OutcomeType.TIMED_OUT, event.error_text, meta=meta)


def shut_down(services: Services, run_id: str, *, reason: str | None, meta: Meta | None = None) -> bool:
    event = ev.RunHostShutdown(check_reason(reason))
    return _terminate(services, run_id, event, RunStatus.FAILED, OutcomeType.HOST_SHUTDOWN, event.error_text, meta=meta)


def _freed(row: RunRow) -> RunChange:
    return rows.unblocked(row) | rows.unpaused(row) | rows.recalled(row)


def _terminate(
    services: Services,
    run_id: str,
    event: ev.Event,
    status: RunStatus,
    outcome: OutcomeType,
    error: str | None,
    *,
    meta: Meta | None,
) -> bool:
    """Append a terminal event at once; False when the run has ended already, whichever way."""

    def end() -> bool:
        row = services.store.lock(run_id)
        if row.status.is_terminal:
            return False
        change = rows.ended(status, outcome, error=error, now=services.store.clock.now())
        services.append(row, (event,), change=change | _freed(row), meta=meta)
        return True

    return services.store.transact(end)
