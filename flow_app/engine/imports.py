"""Taking over a history that another engine recorded."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from flow_app.core.events import EventEnvelope, RunCreated
from flow_app.core.identifiers import check_id, check_run_id
from flow_app.core.policy import expect
from flow_app.core.ports import NewEvent, NewRun, Recorded, RunRow, WakeReason
from flow_app.core.projection import evolve
from flow_app.core.snapshot import RunStatus
from flow_app.core.state import RunState
from flow_app.engine import rows
from flow_app.engine.services import Services
from flow_app.errors import InvalidTransitionError, RunConflictError


def import_run(services: Services, history: Iterable[EventEnvelope]) -> str:
    """Write a whole history as a new run; see :meth:`FlowEngine.import_run`."""
    envelopes = [
        expect(EventEnvelope, item, what="an item of an imported history")
        for item in expect(Iterable, history, what="an imported history")  # type: ignore[type-abstract]
    ]
    if not envelopes:
        raise InvalidTransitionError("an imported history needs at least run_created")
    run_id = check_run_id(envelopes[0].run_id)
    state = _fold(run_id, envelopes)
    created: Any = envelopes[0].event
    now = services.store.clock.now()
    blank = RunRow(0, run_id, created.spec.name, created.spec.version, None, RunStatus.PENDING, 0)
    change = rows.of_state(blank, state, now=envelopes[-1].recorded_at)
    change |= rows.of_progress(envelope.event for envelope in envelopes)
    change["status"] = state.status
    if not state.is_terminal:
        change["wake_at"] = now
        change["wake_reason"] = WakeReason.RUNNABLE
    new_run = NewRun(run_id, created.spec.name, created.spec.version, created.spec.runtime_build_id, change)
    events = [NewEvent(item.event, item.event_id, item.recorded_at, item.meta) for item in envelopes]
    if services.store.create(new_run, events) is None:
        raise RunConflictError(run_id, "a run of this id exists")
    return run_id


def _fold(run_id: str, envelopes: list[EventEnvelope]) -> RunState:
    """Fold it, which refuses what no engine could have written, and check ids as new ones are checked."""
    if not isinstance(envelopes[0].event, RunCreated):
        raise InvalidTransitionError("an imported history must begin with run_created", run_id=run_id)
    state = RunState(run_id)
    for envelope in envelopes:
        if envelope.run_id != run_id:
            raise InvalidTransitionError(f"event {envelope.sequence} belongs to run {envelope.run_id!r}", run_id=run_id)
        evolve(state, Recorded(envelope.sequence, envelope.event, envelope.recorded_at))
    for ids, what in (
        (state.steps, "step id"),
        (state.waits, "wait id"),
        (state.hooks, "hook id"),
        (state.progress, "progress id"),
        (state.child_operations, "child reference id"),
    ):
        for value in ids:
            check_id(value, what=what)
    return state
