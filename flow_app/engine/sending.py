"""What a drive does with steps that travel: note and send them with the commit that starts them, and park."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from flow_app.core import events as ev
from flow_app.core.decider import Decision
from flow_app.core.ports import RunChange
from flow_app.core.remote import Awaited, NewStep
from flow_app.core.snapshot import StepStatus
from flow_app.core.state import RunState
from flow_app.core.tasks import RunStep
from flow_app.engine import rows
from flow_app.engine.journal import Journal
from flow_app.engine.services import Services
from flow_app.engine.shift import Shift


@dataclass(frozen=True, slots=True)
class Plan:
    """Which of a decision's steps run here, and which are to be sent; the others are out already."""

    here: tuple[str, ...]
    sent: tuple[str, ...]
    awaited: Awaited


def plan(services: Services, journal: Journal, decision: Decision, *, batch: bool) -> Plan | None:
    """The members of a batch travel, and steps that are declared to, wherever they can be sent.

    None when an outcome has come in that the state does not show yet: its step must not be taken for lost.
    """
    out = _out(services, journal)
    if len(out) != journal.row.steps_out:
        return None
    fresh = [step_id for step_id in decision.run if step_id not in out]
    sent: list[str] = []
    if services.sends_steps:
        names = {event.step_id: event.step_name for event in decision.events if isinstance(event, ev.StepCreated)}
        steps = journal.state.steps
        for step_id in fresh:
            name = names[step_id] if step_id in names else steps[step_id].step_name
            if batch or services.runtime.step_options(name).travels:
                sent.append(step_id)
    here = tuple(step_id for step_id in fresh if step_id not in sent)
    # What the workflow does not name now may be what it asks about next: then every outcome counts.
    return Plan(here, tuple(sent), Awaited.ALL if out <= set(decision.run) else Awaited.ANY)


def send(services: Services, journal: Journal, decision: Decision, plan: Plan, *, shift: Shift) -> bool:
    """Commit the decision, the notes and the park at once, and send. False: somebody else wrote first.

    The worker's shift may hold some members of a batch; of steps that are declared to travel, none.
    """
    journal.declare(decision.events)
    row = journal.row
    steps = [_new_step(services, journal.state, step_id) for step_id in plan.sent]
    change = rows.parked(journal.state)
    change |= RunChange(steps_out=row.steps_out + len(steps), steps_awaited=plan.awaited.value)
    if not journal.flush(change, send=steps):
        return False
    tasks = [(RunStep(row.run_id, step.step_id, step.attempt), step) for step in steps]
    declared = services.runtime.step_options
    held = set(shift.hold_half([task for task, step in tasks if not declared(step.step_name).travels], build=row.build))
    for task, step in tasks:
        if task not in held:
            services.dispatch_step_quietly(task, build=row.build, queue=step.queue)
    return True


def late_outcomes(services: Services, journal: Journal) -> Awaited | None:
    """Are bodies out that ran when the run was asked to stop? Clean-up waits for them, as it does in one process."""
    if journal.state.cancellation is None:
        return None
    steps, out = journal.state.steps, _out(services, journal)
    late = {step_id for step_id in out if step_id in steps and steps[step_id].status is StepStatus.CANCELLED}
    if not late:
        return None
    return Awaited.ALL if late == out else Awaited.ANY


def _out(services: Services, journal: Journal) -> set[str]:
    """Ids of the steps that are out; asks only where the row says that there are some."""
    store = services.step_store
    return store.steps_out(journal.row) if journal.row.steps_out and store is not None else set()


def _new_step(services: Services, state: RunState, step_id: str) -> NewStep:
    step = state.steps[step_id]
    options = services.runtime.step_options(step.step_name)
    assert state.spec is not None
    return NewStep(
        step_id=step_id,
        attempt=step.attempt,
        step_name=step.step_name,
        input=step.input_payload,
        retry=step.retry,
        spec=state.spec,
        queue=options.queue,
        timeout=options.timeout,
    )


def released(state: RunState, step_ids: Sequence[str]) -> list[str]:
    """Those whose delayed retry is over."""
    return [step_id for step_id in step_ids if step_id in state.delayed_steps]
