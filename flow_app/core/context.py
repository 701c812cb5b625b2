"""What workflow code and step code see: reads of what is committed, and builders of commands."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from random import Random
from typing import Any, Protocol, runtime_checkable
from uuid import UUID, uuid5

from flow_app.core import commands as cmd
from flow_app.core import tokens
from flow_app.core.events import EventEnvelope
from flow_app.core.identifiers import check_id
from flow_app.core.payload import DEFAULT_LIMITS, Limits, Payload
from flow_app.core.policy import (
    CancellationRequest,
    ChildOperationReference,
    HookMetadata,
    RetryPolicy,
    WorkflowProgress,
    expect,
)
from flow_app.core.snapshot import HookStatus, StepStatus, WaitStatus
from flow_app.core.spec import WorkflowSpec
from flow_app.core.state import RunState
from flow_app.errors import AttemptEndedError, HookTokenKeyMissingError, InvalidTransitionError

_NAMESPACE = UUID("5d7f3f0e-6c0b-4a55-9d49-0d3b9b9a8f11")

Secrets = Sequence[str | bytes]


@runtime_checkable
class StepReference(Protocol):
    """Anything that names a step: a function decorated with ``@step``."""

    step_name: str
    retry: RetryPolicy


class WorkflowContext:
    """A run as its workflow function sees it. Everything read here is committed; nothing read here changes by itself.

    Values are decoded afresh on every read: changing one changes nothing that is recorded.
    """

    def __init__(
        self,
        state: RunState,
        *,
        history: Callable[[], list[EventEnvelope]],
        secrets: Secrets = (),
        limits: Limits = DEFAULT_LIMITS,
    ) -> None:
        self._state = state
        self._history = history
        self._secrets = secrets
        self._limits = limits

    # --- reading ----------------------------------------------------------------------------------------------------

    @property
    def run_id(self) -> str:
        return self._state.run_id

    @property
    def spec(self) -> WorkflowSpec:
        assert self._state.spec is not None
        return self._state.spec

    @property
    def version(self) -> str:
        """The workflow version recorded when the run started; fixed for its life."""
        return self.spec.version

    @property
    def input(self) -> Any:
        assert self._state.input_payload is not None
        return self._state.input_payload.value

    @property
    def history(self) -> list[EventEnvelope]:
        """Every event so far. Costs a read of the whole history: the other reads answer from indexes."""
        return self._history()

    # What workflow code may use where it would reach for the clock or for chance: the same on every replay.

    @property
    def created_at(self) -> datetime:
        """When the run was created, in UTC. For the time of anything later, read the clock in a step."""
        assert self._state.created_at is not None
        return self._state.created_at

    def uuid(self, name: str) -> UUID:
        """An id that belongs to this run and this name."""
        return uuid5(_NAMESPACE, f"{self.run_id}/{name}")

    def random(self, name: str) -> Random:
        """A generator that starts anew from this run and this name at every call. Not for secrets."""
        return Random(f"{self.run_id}/{name}")  # noqa: S311 - predictable on purpose

    @property
    def cancellation_request(self) -> CancellationRequest | None:
        cancellation = self._state.cancellation
        return None if cancellation is None else cancellation.request

    def step_scheduled(self, step_id: str) -> bool:
        """Has the step been declared, whatever became of it?"""
        return step_id in self._state.steps

    def step_completed(self, step_id: str) -> bool:
        step = self._state.steps.get(step_id)
        return step is not None and step.status is StepStatus.COMPLETED

    def step_output(self, step_id: str) -> Any:
        """The committed output of a completed step, None otherwise (see ``step_completed`` for a None output)."""
        step = self._state.steps.get(step_id)
        return None if step is None else step.output

    def step_failed(self, step_id: str) -> str | None:
        """The error of a step that failed for good, None otherwise."""
        step = self._state.steps.get(step_id)
        return step.error or "" if step is not None and step.status is StepStatus.FAILED else None

    def wait_scheduled(self, wait_id: str) -> bool:
        return wait_id in self._state.waits

    def wait_completed(self, wait_id: str) -> bool:
        wait = self._state.waits.get(wait_id)
        return wait is not None and wait.status is WaitStatus.COMPLETED

    def hook_created(self, hook_id: str) -> bool:
        return hook_id in self._state.hooks

    def hook_received(self, hook_id: str) -> bool:
        return self._hook_is(hook_id, HookStatus.RECEIVED)

    def hook_payload(self, hook_id: str) -> Any:
        """The payload of a received hook, None otherwise (ask ``hook_received`` when None may be a payload)."""
        hook = self._state.hooks.get(hook_id)
        return None if hook is None else hook.payload

    def hook_disposed(self, hook_id: str) -> bool:
        return self._hook_is(hook_id, HookStatus.DISPOSED)

    def hook_expired(self, hook_id: str) -> bool:
        return self._hook_is(hook_id, HookStatus.EXPIRED)

    def _hook_is(self, hook_id: str, status: HookStatus) -> bool:
        hook = self._state.hooks.get(hook_id)
        return hook is not None and hook.status is status

    def progress(self, progress_id: str) -> WorkflowProgress | None:
        payload = self._state.progress.get(progress_id)
        return None if payload is None else WorkflowProgress.from_payload(payload)

    def child_operation(self, reference_id: str) -> ChildOperationReference | None:
        payload = self._state.child_operations.get(reference_id)
        return None if payload is None else ChildOperationReference.from_payload(payload)

    def hook_token(self, hook_id: str) -> str:
        """The unguessable token of a hook of this run, the same on every replay.

        Raises HookTokenKeyMissingError when the hook exists and no current secret key derives its token.
        """
        return hook_token(self._state, hook_id, secrets=self._secrets)

    # --- commands ---------------------------------------------------------------------------------------------------

    def complete(self, output: object = None) -> cmd.Complete:
        return cmd.Complete(self._payload(output, "output"))

    def fail(self, error: str) -> cmd.Fail:
        return cmd.Fail(error)

    def cancel(self) -> cmd.Cancel:
        """End as cancelled, with the reason of the cancellation request."""
        return cmd.Cancel()

    def timeout(self, deadline: datetime, reason: str | None = None) -> cmd.Timeout:
        return cmd.Timeout(deadline, reason)

    def record_progress(self, progress: WorkflowProgress) -> cmd.RecordProgress:
        return cmd.RecordProgress(expect(WorkflowProgress, progress, what="progress"))

    def link_child_operation(self, child: ChildOperationReference) -> cmd.LinkChildOperation:
        return cmd.LinkChildOperation(expect(ChildOperationReference, child, what="child operation"))

    def step(
        self, step_id: str, step: str | StepReference, input: object = None, *, retry: RetryPolicy | None = None
    ) -> cmd.ScheduleStep:
        """One member for :meth:`schedule_steps`. ``step`` is a decorated function or the name of one."""
        payload = self._payload(input, f"input of step {step_id!r}")
        if isinstance(step, str):
            return cmd.ScheduleStep(step_id, step, payload, retry)
        step_name, default = getattr(step, "step_name", None), getattr(step, "retry", None)
        if not isinstance(step_name, str) or not isinstance(default, RetryPolicy):
            name = getattr(step, "__qualname__", None) or repr(step)
            raise InvalidTransitionError(
                f"step {step_id!r} was given {name}, which is no step; decorate it with @step", run_id=self.run_id
            )
        return cmd.ScheduleStep(step_id, step_name, payload, retry, default)

    def schedule_step(
        self, step_id: str, step: str | StepReference, input: object = None, *, retry: RetryPolicy | None = None
    ) -> cmd.ScheduleStep:
        """Run one step. Without ``retry`` the step's own policy holds, else three attempts at once."""
        return self.step(step_id, step, input, retry=retry)

    def schedule_steps(self, steps: Iterable[cmd.ScheduleStep]) -> cmd.ScheduleSteps:
        """Run a batch: all members are declared durably first, then run side by side, each outcome on its own."""
        members = expect(Iterable, steps, what="the batch of schedule_steps")  # type: ignore[type-abstract]
        return cmd.ScheduleSteps(
            tuple(expect(cmd.ScheduleStep, member, what="a member of schedule_steps") for member in members)
        )

    def wait_until(self, wait_id: str, resume_at: datetime) -> cmd.WaitUntil:
        """Wait for an absolute instant (an aware datetime)."""
        return cmd.WaitUntil(wait_id, resume_at)

    def create_hook(
        self,
        hook_id: str,
        token: str | None = None,
        metadata: HookMetadata | object = None,
        *,
        expires_at: datetime | None = None,
    ) -> cmd.CreateHook:
        """Wait for an answer from outside. Without ``token`` the derived one of :meth:`hook_token` is used.

        From ``expires_at`` on the hook is closed as expired, and answers are refused.
        """
        value = metadata.to_value() if isinstance(metadata, HookMetadata) else metadata
        payload = self._payload(value, f"metadata of hook {hook_id!r}")
        return cmd.CreateHook(hook_id, self.hook_token(hook_id) if token is None else token, payload, expires_at)

    def _payload(self, value: object, what: str) -> Payload:
        return Payload.of(value, what=what, limits=self._limits)


def hook_token(state: RunState, hook_id: str, *, secrets: Secrets) -> str:
    """The derived token of a hook: under the newest secret, or under the one an existing hook was made with."""
    hook = state.hooks.get(check_id(hook_id, what="hook id"))
    return derived_token(state.run_id, hook_id, known=None if hook is None else hook.token_digest, secrets=secrets)


def derived_token(run_id: str, hook_id: str, *, known: str | None, secrets: Secrets) -> str:
    """The token of a hook whose digest is ``known``, or of one that is yet to be made."""
    if known is None and secrets:
        return tokens.derive(secrets[0], run_id=run_id, hook_id=hook_id)
    token = None if known is None else tokens.derive_matching(secrets, run_id=run_id, hook_id=hook_id, known=known)
    if token is None:
        raise HookTokenKeyMissingError(run_id, hook_id)
    return token


@dataclass(frozen=True, slots=True)
class StepContext:
    """One attempt of one step, as its body sees it."""

    run_id: str
    step_id: str
    step_name: str
    attempt: int
    input_payload: Payload
    spec: WorkflowSpec
    logger: logging.LoggerAdapter[logging.Logger] = field(repr=False)
    token_for: Callable[[str], str] = field(repr=False)
    read_history: Callable[[], list[EventEnvelope]] = field(repr=False)
    is_cancelled: Callable[[], bool] = field(repr=False, default=lambda: False)
    renew: Callable[[], None] = field(repr=False, default=lambda: None)

    @property
    def input(self) -> Any:
        return self.input_payload.value

    @property
    def idempotency_key(self) -> str:
        """The same for every attempt and redelivery of this step: give it to the system that must act only once."""
        return f"{self.run_id}/{self.step_id}"

    @property
    def cancelled(self) -> bool:
        """Nobody waits for this attempt any more: whatever it returns will be dropped. Costs no statement."""
        return self.is_cancelled()

    def heartbeat(self) -> None:
        """Say that the body is alive. A long body calls it in its loop, as often as it likes.

        Raises AttemptEndedError when nobody waits for it any more: its time is over, the run has ended, or another
        worker has the attempt. Let it through, or clean up and return: what the body then returns is dropped.
        """
        if not self.is_cancelled():
            self.renew()
        if self.is_cancelled():
            raise AttemptEndedError(self.run_id, self.step_id, self.attempt)

    @property
    def history(self) -> list[EventEnvelope]:
        """Every event of the run so far. Costs a read of the whole history."""
        return self.read_history()

    @property
    def labels(self) -> Mapping[str, str | int]:
        """What a log line or a metric of this attempt should carry."""
        return {"run_id": self.run_id, "step_id": self.step_id, "attempt": self.attempt}

    def hook_token(self, hook_id: str) -> str:
        """The token of a hook of this run: a step can mail its link without the token passing through history."""
        return self.token_for(hook_id)
