"""What a run looks like: the frozen pieces of its state, and the whole snapshot callers get."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any

from flow_app.core.payload import Payload
from flow_app.core.policy import CancellationRequest, ChildOperationReference, RetryPolicy, WorkflowProgress
from flow_app.core.spec import WorkflowSpec


class RunStatus(StrEnum):
    PENDING = "pending"
    RUNNING = "running"
    SUSPENDED = "suspended"
    CANCELLING = "cancelling"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def is_terminal(self) -> bool:
        return self in _TERMINAL


_TERMINAL = frozenset({RunStatus.COMPLETED, RunStatus.FAILED, RunStatus.CANCELLED})


class StepStatus(StrEnum):
    PENDING = "pending"
    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"


class WaitStatus(StrEnum):
    WAITING = "waiting"
    COMPLETED = "completed"
    CANCELLED = "cancelled"


class HookStatus(StrEnum):
    ACTIVE = "active"
    RECEIVED = "received"
    DISPOSED = "disposed"
    EXPIRED = "expired"
    CANCELLED = "cancelled"


class OutcomeType(StrEnum):
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"
    TIMED_OUT = "timed_out"
    RETRY_EXHAUSTED = "retry_exhausted"
    HOST_SHUTDOWN = "host_shutdown"


@dataclass(frozen=True, slots=True)
class StepSnapshot:
    """One step. ``late_attempt`` was running when cancellation was requested, and may still report its outcome."""

    step_id: str
    step_name: str
    status: StepStatus
    input_payload: Payload
    retry: RetryPolicy
    attempt: int = 0
    output_payload: Payload | None = None
    error: str | None = None
    retry_after: datetime | None = None
    late_attempt: int | None = None

    @property
    def input(self) -> Any:
        return self.input_payload.value

    @property
    def output(self) -> Any:
        return None if self.output_payload is None else self.output_payload.value

    @property
    def is_settled(self) -> bool:
        """Completed, failed or cancelled: no command may schedule it again."""
        return self.status is not StepStatus.RUNNING and self.status is not StepStatus.PENDING

    def awaits_outcome_of(self, attempt: int) -> bool:
        """Would an outcome of this attempt be accepted?"""
        if self.status is StepStatus.RUNNING:
            return self.attempt == attempt
        return self.status is StepStatus.CANCELLED and self.late_attempt == attempt


@dataclass(frozen=True, slots=True)
class WaitSnapshot:
    wait_id: str
    status: WaitStatus
    resume_at: datetime


@dataclass(frozen=True, slots=True)
class HookSnapshot:
    """One hook. ``token_digest`` is ``sha256:<hex>``; the raw token is kept nowhere."""

    hook_id: str
    token_digest: str = field(repr=False)
    status: HookStatus
    metadata_payload: Payload
    expires_at: datetime | None = None
    received_payload: Payload | None = None

    @property
    def metadata(self) -> Any:
        return self.metadata_payload.value

    @property
    def payload(self) -> Any:
        return None if self.received_payload is None else self.received_payload.value


@dataclass(frozen=True, slots=True)
class Cancellation:
    """The one durable cancellation request of a run."""

    request: CancellationRequest
    requested_at: datetime
    sequence: int


@dataclass(frozen=True, slots=True)
class TerminalOutcome:
    """How a run ended; which fields are set depends on ``type``."""

    type: OutcomeType
    output_payload: Payload | None = None
    error: str | None = None
    reason: str | None = None
    deadline: datetime | None = None
    step_id: str | None = None
    attempt: int | None = None

    @property
    def output(self) -> Any:
        return None if self.output_payload is None else self.output_payload.value


@dataclass(frozen=True, slots=True)
class WorkflowRunSnapshot:
    """A run, folded from its history. A pure projection: nothing in it is authoritative."""

    run_id: str
    spec: WorkflowSpec
    input_payload: Payload
    status: RunStatus
    steps: Mapping[str, StepSnapshot]
    waits: Mapping[str, WaitSnapshot]
    hooks: Mapping[str, HookSnapshot]
    cancellation: Cancellation | None
    progress: tuple[WorkflowProgress, ...]
    child_operations: Mapping[str, ChildOperationReference]
    terminal_outcome: TerminalOutcome | None
    error: str | None
    last_sequence: int

    @property
    def input(self) -> Any:
        return self.input_payload.value

    @property
    def output(self) -> Any:
        """The run's output, None unless it completed."""
        return None if self.terminal_outcome is None else self.terminal_outcome.output

    @property
    def latest_progress(self) -> WorkflowProgress | None:
        return self.progress[-1] if self.progress else None

    @property
    def has_open_suspension(self) -> bool:
        return (
            any(wait.status is WaitStatus.WAITING for wait in self.waits.values())
            or any(hook.status is HookStatus.ACTIVE for hook in self.hooks.values())
            or any(step.retry_after is not None for step in self.steps.values())
        )

    def step_output(self, step_id: str) -> Any:
        """The output of a completed step, None otherwise."""
        step = self.steps.get(step_id)
        return None if step is None else step.output

    def hook_payload(self, hook_id: str) -> Any:
        """The payload of a received hook, None otherwise."""
        hook = self.hooks.get(hook_id)
        return None if hook is None else hook.payload

    def child_operation(self, reference_id: str) -> ChildOperationReference | None:
        return self.child_operations.get(reference_id)

    def due_retries(self, now: datetime) -> list[str]:
        """Ids of steps whose delayed retry is due, sorted."""
        steps = self.steps.values()
        return sorted(step.step_id for step in steps if step.retry_after is not None and step.retry_after <= now)

    def has_future_retry(self, now: datetime) -> bool:
        return any(step.retry_after is not None and step.retry_after > now for step in self.steps.values())
