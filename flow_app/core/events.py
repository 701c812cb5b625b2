"""The 22 events: what may stand in a run's log. Names and fields are the wire contract of the reference engine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, ClassVar
from uuid import UUID

from flow_app.core.instants import to_text
from flow_app.core.payload import Payload
from flow_app.core.policy import CancellationRequest, RetryPolicy
from flow_app.core.spec import WorkflowSpec


@dataclass(frozen=True, slots=True)
class Event:
    """Base of all events. ``type`` is the name on the wire, ``key`` the dotted name for logs and metrics."""

    type: ClassVar[str]
    key: ClassVar[str]
    terminal: ClassVar[bool] = False


# --- the run --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RunCreated(Event):
    type: ClassVar[str] = "run_created"
    key: ClassVar[str] = "flow.run.created"
    spec: WorkflowSpec
    input: Payload


@dataclass(frozen=True, slots=True)
class RunStarted(Event):
    type: ClassVar[str] = "run_started"
    key: ClassVar[str] = "flow.run.started"


@dataclass(frozen=True, slots=True)
class RunCompleted(Event):
    type: ClassVar[str] = "run_completed"
    key: ClassVar[str] = "flow.run.completed"
    terminal: ClassVar[bool] = True
    output: Payload


@dataclass(frozen=True, slots=True)
class RunFailed(Event):
    type: ClassVar[str] = "run_failed"
    key: ClassVar[str] = "flow.run.failed"
    terminal: ClassVar[bool] = True
    error: str


@dataclass(frozen=True, slots=True)
class RunCancellationRequested(Event):
    type: ClassVar[str] = "run_cancellation_requested"
    key: ClassVar[str] = "flow.run.cancellation.requested"
    request: CancellationRequest


@dataclass(frozen=True, slots=True)
class RunCancelled(Event):
    type: ClassVar[str] = "run_cancelled"
    key: ClassVar[str] = "flow.run.cancelled"
    terminal: ClassVar[bool] = True
    reason: str | None


@dataclass(frozen=True, slots=True)
class RunTimedOut(Event):
    type: ClassVar[str] = "run_timed_out"
    key: ClassVar[str] = "flow.run.timed_out"
    terminal: ClassVar[bool] = True
    deadline: datetime
    reason: str | None

    @property
    def error_text(self) -> str:
        """What the run shows as its error."""
        return self.reason or f"The run passed its deadline {to_text(self.deadline)}."


@dataclass(frozen=True, slots=True)
class RunRetryExhausted(Event):
    type: ClassVar[str] = "run_retry_exhausted"
    key: ClassVar[str] = "flow.run.retry_exhausted"
    terminal: ClassVar[bool] = True
    step_id: str
    attempt: int
    error: str


@dataclass(frozen=True, slots=True)
class RunHostShutdown(Event):
    type: ClassVar[str] = "run_host_shutdown"
    key: ClassVar[str] = "flow.run.host_shutdown"
    terminal: ClassVar[bool] = True
    reason: str | None

    @property
    def error_text(self) -> str:
        """What the run shows as its error."""
        return self.reason or "The host shut the run down."


@dataclass(frozen=True, slots=True)
class RunProgressRecorded(Event):
    type: ClassVar[str] = "run_progress_recorded"
    key: ClassVar[str] = "flow.run.progress.recorded"
    progress: Payload  # the tree of a WorkflowProgress

    @property
    def progress_id(self) -> str:
        return self.progress.tree["progress_id"]  # type: ignore[index, call-overload, return-value]


@dataclass(frozen=True, slots=True)
class ChildOperationLinked(Event):
    type: ClassVar[str] = "child_operation_linked"
    key: ClassVar[str] = "flow.child.operation.linked"
    child: Payload  # the tree of a ChildOperationReference

    @property
    def reference_id(self) -> str:
        return self.child.tree["reference_id"]  # type: ignore[index, call-overload, return-value]

    @property
    def flow_run_id(self) -> str | None:
        return self.child.tree.get("flow_run_id")  # type: ignore[union-attr, return-value]


# --- steps ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class StepCreated(Event):
    type: ClassVar[str] = "step_created"
    key: ClassVar[str] = "flow.step.created"
    step_id: str
    step_name: str
    input: Payload
    retry: RetryPolicy


@dataclass(frozen=True, slots=True)
class StepStarted(Event):
    type: ClassVar[str] = "step_started"
    key: ClassVar[str] = "flow.step.started"
    step_id: str
    attempt: int


@dataclass(frozen=True, slots=True)
class StepCompleted(Event):
    type: ClassVar[str] = "step_completed"
    key: ClassVar[str] = "flow.step.completed"
    step_id: str
    output: Payload


@dataclass(frozen=True, slots=True)
class StepRetrying(Event):
    type: ClassVar[str] = "step_retrying"
    key: ClassVar[str] = "flow.step.retrying"
    step_id: str
    attempt: int
    error: str
    retry_after: datetime | None


@dataclass(frozen=True, slots=True)
class StepFailed(Event):
    type: ClassVar[str] = "step_failed"
    key: ClassVar[str] = "flow.step.failed"
    step_id: str
    attempt: int
    error: str


# --- waits and hooks ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class WaitCreated(Event):
    type: ClassVar[str] = "wait_created"
    key: ClassVar[str] = "flow.wait.created"
    wait_id: str
    resume_at: datetime


@dataclass(frozen=True, slots=True)
class WaitCompleted(Event):
    type: ClassVar[str] = "wait_completed"
    key: ClassVar[str] = "flow.wait.completed"
    wait_id: str


@dataclass(frozen=True, slots=True)
class HookCreated(Event):
    type: ClassVar[str] = "hook_created"
    key: ClassVar[str] = "flow.hook.created"
    hook_id: str
    token: str  # its digest, "sha256:<hex>": the raw token is kept nowhere
    metadata: Payload
    expires_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class HookReceived(Event):
    type: ClassVar[str] = "hook_received"
    key: ClassVar[str] = "flow.hook.received"
    hook_id: str
    payload: Payload


@dataclass(frozen=True, slots=True)
class HookDisposed(Event):
    type: ClassVar[str] = "hook_disposed"
    key: ClassVar[str] = "flow.hook.disposed"
    hook_id: str


@dataclass(frozen=True, slots=True)
class HookExpired(Event):
    type: ClassVar[str] = "hook_expired"
    key: ClassVar[str] = "flow.hook.expired"
    hook_id: str


EVENT_TYPES: Mapping[str, type[Event]] = {
    event.type: event
    for event in (
        RunCreated, RunStarted, RunCompleted, RunFailed, RunCancellationRequested, RunCancelled, RunTimedOut,
        RunRetryExhausted, RunHostShutdown, RunProgressRecorded, ChildOperationLinked,
        StepCreated, StepStarted, StepCompleted, StepRetrying, StepFailed,
        WaitCreated, WaitCompleted, HookCreated, HookReceived, HookDisposed, HookExpired,
    )
}  # fmt: skip

#: Events of which the fold keeps when they were recorded.
DATED: tuple[type[Event], ...] = (RunCreated, RunCancellationRequested)

#: Events that close whatever is open in the run.
CLOSING: tuple[type[Event], ...] = (
    RunCancellationRequested, RunCompleted, RunFailed, RunCancelled, RunTimedOut, RunRetryExhausted, RunHostShutdown,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class EventEnvelope:
    """One event as it stands in the log. ``meta`` holds who or what caused it, outside of all decisions."""

    run_id: str
    sequence: int
    event_id: UUID
    recorded_at: datetime
    event: Event
    meta: Mapping[str, Any] = field(default_factory=dict)

    @property
    def type(self) -> str:
        return self.event.type

    @property
    def key(self) -> str:
        return self.event.key

    @property
    def data(self) -> dict[str, Any]:
        """The event's fields as plain Python values, payloads decoded."""
        from flow_app.core.codec import to_data  # the codec knows the events, not the other way round

        return to_data(self.event)

    def to_wire(self) -> dict[str, Any]:
        """The reference engine's JSON; payloads are plain JSON there, rich types become strings."""
        from flow_app.core.codec import envelope_to_wire

        return envelope_to_wire(self)

    @classmethod
    def from_wire(cls, wire: Mapping[str, Any]) -> EventEnvelope:
        """Read the reference engine's JSON. Raises PayloadError when it does not have that shape."""
        from flow_app.core.codec import envelope_from_wire

        return envelope_from_wire(wire)
