"""A delayed retry, begun before its time."""

from __future__ import annotations

from flow_app.core import events as ev
from flow_app.core.identifiers import check_id
from flow_app.core.ports import RunRow
from flow_app.engine import folded
from flow_app.engine.inspection import load_state
from flow_app.engine.services import Meta, Services
from flow_app.errors import InvalidTransitionError, RunTerminalError


def start(services: Services, run_id: str, step_id: str, *, meta: Meta | None = None) -> bool:
    """Begin the next attempt of a step now; True when this call did. See :meth:`FlowEngine.retry_now`."""
    check_id(step_id, what="step id")
    row, started = services.store.transact(lambda: _start(services, run_id, step_id, meta))
    if not row.status.is_terminal:
        services.dispatch_drive(run_id, row.build)
    return started


def _start(services: Services, run_id: str, step_id: str, meta: Meta | None) -> tuple[RunRow, bool]:
    """Record the attempt as started, if a delay holds it back. Its body is delivered by whoever drives the run next."""
    row = services.store.lock(run_id)
    if row.status.is_terminal:
        raise RunTerminalError(run_id, "retries")
    state = load_state(services, row)
    if step_id not in state.steps:
        raise InvalidTransitionError(f"step {step_id!r} was never scheduled", run_id=run_id)
    services.admit(run_id, row.build, or_routed=True)
    waits = step_id in state.delayed_steps
    if waits:
        attempt = state.steps[step_id].attempt + 1
        folded.append(services, row, state, ev.StepStarted(step_id, attempt), meta=meta)
    return row, waits
