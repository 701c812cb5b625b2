"""The fold: one event after another onto a run's state. Every illegal history is refused here, and nowhere else.

An event is checked completely before anything changes, so a refused event leaves the state as it was.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, NoReturn

from flow_app.core import events as ev
from flow_app.core.payload import IMPORT_LIMITS, Payload
from flow_app.core.policy import ChildOperationReference, WorkflowProgress
from flow_app.core.ports import Recorded
from flow_app.core.snapshot import (
    Cancellation,
    HookSnapshot,
    HookStatus,
    OutcomeType,
    RunStatus,
    StepSnapshot,
    StepStatus,
    TerminalOutcome,
    WaitSnapshot,
    WaitStatus,
    WorkflowRunSnapshot,
)
from flow_app.core.state import RunState
from flow_app.errors import FlowError, InvalidTransitionError, InvalidWorkflowError, RunNotFoundError


def fold(run_id: str, history: Iterable[ev.EventEnvelope]) -> WorkflowRunSnapshot:
    """The snapshot of a whole history, in the order given.

    Raises RunNotFoundError for an empty one, InvalidWorkflowError for a bad spec, InvalidTransitionError otherwise.
    """
    state = RunState(run_id)
    for envelope in history:
        if envelope.run_id != run_id:
            raise InvalidTransitionError(f"event {envelope.sequence} belongs to run {envelope.run_id!r}", run_id=run_id)
        evolve(state, Recorded(envelope.sequence, envelope.event, envelope.recorded_at))
    if state.last_sequence == 0:
        raise RunNotFoundError(run_id)
    return state.snapshot()


def evolve(state: RunState, recorded: Recorded) -> None:
    """Fold one event. Raises InvalidTransitionError (InvalidWorkflowError for a bad spec) and changes nothing then."""
    sequence, event, _ = recorded
    if sequence != state.last_sequence + 1:
        _refuse(state, f"event {sequence} does not follow event {state.last_sequence}")
    if state.outcome is not None:
        _refuse(state, f"{event.type} at {sequence} comes after the run has ended")
    if (sequence == 1) is not isinstance(event, ev.RunCreated):
        _refuse(state, f"{event.type} at {sequence}: run_created comes first, and once")
    _APPLY[type(event)](state, event, recorded)
    state.assign("last_sequence", sequence)


def _refuse(state: RunState, reason: str) -> NoReturn:
    raise InvalidTransitionError(reason, run_id=state.run_id)


# --- the run --------------------------------------------------------------------------------------------------------


def _run_created(state: RunState, event: ev.RunCreated, recorded: Recorded) -> None:
    try:
        event.spec.check()
    except InvalidWorkflowError:
        raise
    except FlowError as error:
        raise InvalidWorkflowError(str(error)) from None
    state.assign("created_at", recorded.recorded_at)
    state.assign("spec", event.spec)
    state.assign("input_payload", event.input)


def _run_started(state: RunState, event: ev.RunStarted, recorded: Recorded) -> None:
    if state.lifecycle is not RunStatus.PENDING:
        _refuse(state, f"run_started while {state.lifecycle}")
    state.assign("lifecycle", RunStatus.RUNNING)


def _run_completed(state: RunState, event: ev.RunCompleted, recorded: Recorded) -> None:
    if state.lifecycle is RunStatus.CANCELLING:
        _refuse(state, "run_completed while cancelling")
    _end(state, RunStatus.COMPLETED, TerminalOutcome(OutcomeType.COMPLETED, output_payload=event.output), error=None)


def _run_failed(state: RunState, event: ev.RunFailed, recorded: Recorded) -> None:
    _end(state, RunStatus.FAILED, TerminalOutcome(OutcomeType.FAILED, error=event.error), error=event.error)


def _run_cancellation_requested(state: RunState, event: ev.RunCancellationRequested, recorded: Recorded) -> None:
    if state.cancellation is not None:
        _refuse(state, "a second cancellation request")
    assert recorded.recorded_at is not None
    state.assign("cancellation", Cancellation(event.request, recorded.recorded_at, recorded.sequence))
    state.assign("lifecycle", RunStatus.CANCELLING)
    _close_everything(state, late_outcomes=True)


def _run_cancelled(state: RunState, event: ev.RunCancelled, recorded: Recorded) -> None:
    outcome = TerminalOutcome(OutcomeType.CANCELLED, reason=event.reason)
    _end(state, RunStatus.CANCELLED, outcome, error=event.reason)


def _run_timed_out(state: RunState, event: ev.RunTimedOut, recorded: Recorded) -> None:
    outcome = TerminalOutcome(OutcomeType.TIMED_OUT, deadline=event.deadline, reason=event.reason)
    _end(state, RunStatus.FAILED, outcome, error=event.error_text)


def _run_retry_exhausted(state: RunState, event: ev.RunRetryExhausted, recorded: Recorded) -> None:
    step = _step(state, event.step_id, event.type)
    if step.status is not StepStatus.FAILED:
        _refuse(state, f"run_retry_exhausted names step {step.step_id!r}, which is {step.status}")
    if not step.retry.fails_run or step.late_attempt is not None:
        _refuse(state, f"run_retry_exhausted names step {step.step_id!r}, whose failure the workflow handles")
    if (event.attempt, event.error) != (step.attempt, step.error):
        _refuse(state, f"run_retry_exhausted does not repeat attempt and error of step {step.step_id!r}")
    outcome = TerminalOutcome(
        OutcomeType.RETRY_EXHAUSTED, step_id=event.step_id, attempt=event.attempt, error=event.error
    )
    _end(state, RunStatus.FAILED, outcome, error=event.error)


def _run_host_shutdown(state: RunState, event: ev.RunHostShutdown, recorded: Recorded) -> None:
    outcome = TerminalOutcome(OutcomeType.HOST_SHUTDOWN, reason=event.reason)
    _end(state, RunStatus.FAILED, outcome, error=event.error_text)


def _end(state: RunState, status: RunStatus, outcome: TerminalOutcome, *, error: str | None) -> None:
    state.assign("lifecycle", status)
    state.assign("outcome", outcome)
    state.assign("error", error)
    state.assign("unreported_failure", None)
    _close_everything(state, late_outcomes=False)


def _close_everything(state: RunState, *, late_outcomes: bool) -> None:
    """Cancel what is open. With ``late_outcomes`` an attempt that is running may still report its outcome."""
    for step_id in list(state.open_steps):
        step = state.steps[step_id]
        late = step.attempt if late_outcomes and step.status is StepStatus.RUNNING else None
        state.put_step(replace(step, status=StepStatus.CANCELLED, retry_after=None, late_attempt=late))
    for wait_id in list(state.open_waits):
        state.put_wait(replace(state.waits[wait_id], status=WaitStatus.CANCELLED))
    for hook_id in list(state.active_hooks):
        state.put_hook(replace(state.hooks[hook_id], status=HookStatus.CANCELLED))


def _run_progress_recorded(state: RunState, event: ev.RunProgressRecorded, recorded: Recorded) -> None:
    _check_readable(state, event.type, WorkflowProgress, event.progress)
    if event.progress_id in state.progress:
        _refuse(state, f"progress {event.progress_id!r} is recorded twice")
    state.put(state.progress, event.progress_id, event.progress)


def _child_operation_linked(state: RunState, event: ev.ChildOperationLinked, recorded: Recorded) -> None:
    _check_readable(state, event.type, ChildOperationReference, event.child)
    if event.reference_id in state.child_operations:
        _refuse(state, f"child operation {event.reference_id!r} is linked twice")
    state.put(state.child_operations, event.reference_id, event.child)


def _check_readable(
    state: RunState, event_type: str, kind: type[WorkflowProgress | ChildOperationReference], payload: Payload
) -> None:
    """Refuse what does not read back whole and valid."""
    try:
        kind.from_payload(payload).to_payload(limits=IMPORT_LIMITS)
    except (TypeError, FlowError) as error:
        _refuse(state, f"{event_type} is not valid: {error}")


# --- steps ----------------------------------------------------------------------------------------------------------


def _step(state: RunState, step_id: str, event_type: str) -> StepSnapshot:
    step = state.steps.get(step_id)
    if step is None:
        _refuse(state, f"{event_type} names the unknown step {step_id!r}")
    return step


def _step_created(state: RunState, event: ev.StepCreated, recorded: Recorded) -> None:
    if event.step_id in state.steps:
        _refuse(state, f"step {event.step_id!r} is created twice")
    event.retry.check_representable()
    state.put_step(StepSnapshot(event.step_id, event.step_name, StepStatus.PENDING, event.input, event.retry))


def _step_started(state: RunState, event: ev.StepStarted, recorded: Recorded) -> None:
    step = _step(state, event.step_id, event.type)
    if step.status is not StepStatus.PENDING:
        _refuse(state, f"step_started for step {step.step_id!r}, which is {step.status}")
    if event.attempt != step.attempt + 1:
        _refuse(state, f"step {step.step_id!r} starts attempt {event.attempt} after attempt {step.attempt}")
    state.put_step(
        StepSnapshot(
            step.step_id, step.step_name, StepStatus.RUNNING, step.input_payload, step.retry, event.attempt,
            error=step.error,
        )
    )  # fmt: skip


def _step_completed(state: RunState, event: ev.StepCompleted, recorded: Recorded) -> None:
    step = _step(state, event.step_id, event.type)
    if step.status is not StepStatus.RUNNING and not _may_report_late(state, step):
        _refuse(state, f"step_completed for step {step.step_id!r}, which is {step.status}")
    state.put_step(
        StepSnapshot(
            step.step_id, step.step_name, StepStatus.COMPLETED, step.input_payload, step.retry, step.attempt,
            output_payload=event.output, late_attempt=step.late_attempt,
        )
    )  # fmt: skip


def _step_retrying(state: RunState, event: ev.StepRetrying, recorded: Recorded) -> None:
    step = _running_attempt(state, event.step_id, event.attempt, event.type)
    if step.status is not StepStatus.RUNNING:
        _refuse(state, f"step_retrying for step {step.step_id!r}, which is {step.status}")
    if event.attempt >= step.retry.attempts:
        _refuse(state, f"step {step.step_id!r} has no attempt left after attempt {event.attempt}")
    if (step.retry.delay_ms > 0) is not (event.retry_after is not None):
        _refuse(state, f"step_retrying for step {step.step_id!r} does not fit its delay of {step.retry.delay_ms} ms")
    state.put_step(replace(step, status=StepStatus.PENDING, error=event.error, retry_after=event.retry_after))


def _step_failed(state: RunState, event: ev.StepFailed, recorded: Recorded) -> None:
    step = _running_attempt(state, event.step_id, event.attempt, event.type)
    late = step.status is StepStatus.CANCELLED
    if not late and event.attempt < step.retry.attempts:
        _refuse(state, f"step {step.step_id!r} fails at attempt {event.attempt} of {step.retry.attempts}")
    state.put_step(replace(step, status=StepStatus.FAILED, error=event.error, retry_after=None))
    if step.retry.fails_run and not late:
        state.assign("unreported_failure", step.step_id)


def _running_attempt(state: RunState, step_id: str, attempt: int, event_type: str) -> StepSnapshot:
    step = _step(state, step_id, event_type)
    if step.status is not StepStatus.RUNNING and not _may_report_late(state, step):
        _refuse(state, f"{event_type} for step {step_id!r}, which is {step.status}")
    if attempt != step.attempt:
        _refuse(state, f"{event_type} names attempt {attempt} of step {step_id!r}, which runs attempt {step.attempt}")
    return step


def _may_report_late(state: RunState, step: StepSnapshot) -> bool:
    return step.status is StepStatus.CANCELLED and step.late_attempt is not None


# --- waits and hooks ------------------------------------------------------------------------------------------------


def _wait_created(state: RunState, event: ev.WaitCreated, recorded: Recorded) -> None:
    if event.wait_id in state.waits:
        _refuse(state, f"wait {event.wait_id!r} is created twice")
    state.put_wait(WaitSnapshot(event.wait_id, WaitStatus.WAITING, event.resume_at))


def _wait_completed(state: RunState, event: ev.WaitCompleted, recorded: Recorded) -> None:
    wait = state.waits.get(event.wait_id)
    if wait is None or wait.status is not WaitStatus.WAITING:
        found = "unknown" if wait is None else wait.status
        _refuse(state, f"wait_completed for wait {event.wait_id!r}, which is {found}")
    state.put_wait(replace(wait, status=WaitStatus.COMPLETED))


def _hook_created(state: RunState, event: ev.HookCreated, recorded: Recorded) -> None:
    if event.hook_id in state.hooks:
        _refuse(state, f"hook {event.hook_id!r} is created twice")
    state.put_hook(HookSnapshot(event.hook_id, event.token, HookStatus.ACTIVE, event.metadata, event.expires_at))


def _active_hook(state: RunState, hook_id: str, event_type: str) -> HookSnapshot:
    hook = state.hooks.get(hook_id)
    if hook is None or hook.status is not HookStatus.ACTIVE:
        found = "unknown" if hook is None else hook.status
        _refuse(state, f"{event_type} for hook {hook_id!r}, which is {found}")
    return hook


def _hook_received(state: RunState, event: ev.HookReceived, recorded: Recorded) -> None:
    hook = _active_hook(state, event.hook_id, event.type)
    state.put_hook(replace(hook, status=HookStatus.RECEIVED, received_payload=event.payload))


def _hook_disposed(state: RunState, event: ev.HookDisposed, recorded: Recorded) -> None:
    state.put_hook(replace(_active_hook(state, event.hook_id, event.type), status=HookStatus.DISPOSED))


def _hook_expired(state: RunState, event: ev.HookExpired, recorded: Recorded) -> None:
    hook = _active_hook(state, event.hook_id, event.type)
    if hook.expires_at is None:
        _refuse(state, f"hook_expired for hook {event.hook_id!r}, which has no deadline")
    state.put_hook(replace(hook, status=HookStatus.EXPIRED))


_APPLY: Mapping[type[ev.Event], Callable[[RunState, Any, Recorded], None]] = {
    ev.RunCreated: _run_created,
    ev.RunStarted: _run_started,
    ev.RunCompleted: _run_completed,
    ev.RunFailed: _run_failed,
    ev.RunCancellationRequested: _run_cancellation_requested,
    ev.RunCancelled: _run_cancelled,
    ev.RunTimedOut: _run_timed_out,
    ev.RunRetryExhausted: _run_retry_exhausted,
    ev.RunHostShutdown: _run_host_shutdown,
    ev.RunProgressRecorded: _run_progress_recorded,
    ev.ChildOperationLinked: _child_operation_linked,
    ev.StepCreated: _step_created,
    ev.StepStarted: _step_started,
    ev.StepCompleted: _step_completed,
    ev.StepRetrying: _step_retrying,
    ev.StepFailed: _step_failed,
    ev.WaitCreated: _wait_created,
    ev.WaitCompleted: _wait_completed,
    ev.HookCreated: _hook_created,
    ev.HookReceived: _hook_received,
    ev.HookDisposed: _hook_disposed,
    ev.HookExpired: _hook_expired,
}
