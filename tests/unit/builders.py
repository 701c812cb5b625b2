"""Short words for the events and histories that unit tests are made of."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from uuid import UUID

from flow_app.core import events as ev
from flow_app.core.payload import NULL, Payload
from flow_app.core.policy import CancellationRequest, ChildOperationReference, RetryPolicy, WorkflowProgress
from flow_app.core.ports import Recorded
from flow_app.core.projection import evolve
from flow_app.core.spec import WorkflowSpec
from flow_app.core.state import RunState
from flow_app.core.tokens import digest

RUN = "run-1"
NOW = datetime(2026, 5, 4, 12, 0, tzinfo=UTC)
SPEC = WorkflowSpec("unit-invoice", "1")

ONCE = RetryPolicy.none()
TWICE = RetryPolicy.fixed(2)
DELAYED = RetryPolicy.fixed(2, timedelta(seconds=60))
HANDLED = ONCE.continue_workflow_on_failure()

CREATED = ev.RunCreated(SPEC, Payload.of({"invoice": 7}))
STARTED = ev.RunStarted()
BEGUN = (CREATED, STARTED)
CANCELLING = ev.RunCancellationRequested(CancellationRequest("changed my mind"))


def at(seconds: float) -> datetime:
    return NOW + timedelta(seconds=seconds)


def step(step_id: str = "a", retry: RetryPolicy = ONCE, value: object = None, name: str = "charge") -> ev.StepCreated:
    return ev.StepCreated(step_id, name, Payload.of(value), retry)


def running(step_id: str = "a", retry: RetryPolicy = ONCE, attempt: int = 1) -> tuple[ev.Event, ...]:
    """A step on its ``attempt``-th attempt; those before it failed."""
    events: list[ev.Event] = [step(step_id, retry), ev.StepStarted(step_id, 1)]
    for number in range(1, attempt):
        retry_after = at(60) if retry.delay_ms else None
        events += [ev.StepRetrying(step_id, number, "boom", retry_after), ev.StepStarted(step_id, number + 1)]
    return tuple(events)


def retrying(step_id: str = "a", seconds: float = 60) -> tuple[ev.Event, ...]:
    """A step that waits for its second attempt."""
    return (*running(step_id, DELAYED), ev.StepRetrying(step_id, 1, "boom", at(seconds)))


def failed(step_id: str = "a", retry: RetryPolicy = ONCE) -> tuple[ev.Event, ...]:
    return (*running(step_id, retry), ev.StepFailed(step_id, 1, "boom"))


def completed(step_id: str = "a", output: object = None) -> tuple[ev.Event, ...]:
    return (*running(step_id), ev.StepCompleted(step_id, Payload.of(output)))


def wait(wait_id: str = "w", seconds: float = 60) -> ev.WaitCreated:
    return ev.WaitCreated(wait_id, at(seconds))


def hook(hook_id: str = "h", token: str = "t0ken", expires: float | None = None, metadata: Payload = NULL) -> ev.Event:
    return ev.HookCreated(hook_id, digest(token), metadata, None if expires is None else at(expires))


def progress(progress_id: str = "p", completed: int = 1, **more: object) -> ev.RunProgressRecorded:
    return ev.RunProgressRecorded(WorkflowProgress(progress_id, completed, **more).to_payload())  # type: ignore[arg-type]


def child(reference_id: str = "c", operation_id: str = "job-1", **more: object) -> ev.ChildOperationLinked:
    reference = ChildOperationReference(reference_id, "export", operation_id, **more)  # type: ignore[arg-type]
    return ev.ChildOperationLinked(reference.to_payload())


def history(*events: ev.Event, run_id: str = RUN) -> list[ev.EventEnvelope]:
    """Envelopes with sequences from 1, a second apart."""
    return [
        ev.EventEnvelope(run_id, number, UUID(int=number, version=4), at(number), event)
        for number, event in enumerate(events, 1)
    ]


def extend(state: RunState, events: Iterable[ev.Event]) -> RunState:
    for event in events:
        sequence = state.last_sequence + 1
        evolve(state, Recorded(sequence, event, at(sequence)))
    return state


def state_of(*events: ev.Event) -> RunState:
    return extend(RunState(RUN), events)
