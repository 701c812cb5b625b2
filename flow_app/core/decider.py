"""The decider: what a command means for a run in a given state. Pure: events to append and steps to run, or an error.

Each check is made before anything is decided, so a refused command appends nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NoReturn

from flow_app.core import commands as cmd
from flow_app.core import events as ev
from flow_app.core import instants, tokens
from flow_app.core.identifiers import check_id
from flow_app.core.payload import DEFAULT_LIMITS, Limits, dumps
from flow_app.core.policy import CancellationRequest, RetryPolicy, check_reason
from flow_app.core.snapshot import HookStatus, RunStatus, StepSnapshot, StepStatus, WaitStatus
from flow_app.core.state import RunState
from flow_app.errors import InvalidTransitionError, NonDeterministicError

#: What an attempt failed of, when it was not its body that said so.
WORKER_LOST = "worker lost"
TIMED_OUT = "timed out"

_NO_CLOCK = ". Workflow code must not read the clock: read it in a step"
_CANCELLED = "look at ctx.cancellation_request first and return ctx.cancel(), or clean up under new ids"


@dataclass(frozen=True, slots=True)
class Decision:
    """``events`` to append, then ``run``: ids of the steps whose bodies to run. Neither: the run parks.

    ``guarded`` decisions may still be refused by the store (a taken token, a missing child run).
    """

    events: tuple[ev.Event, ...] = ()
    run: tuple[str, ...] = ()
    guarded: bool = False

    @property
    def parks(self) -> bool:
        return not self.events and not self.run

    @property
    def ends(self) -> bool:
        """Is this the run's last decision?"""
        return bool(self.events) and self.events[-1].terminal


PARK = Decision()


def decide(state: RunState, command: cmd.Command, *, now: datetime, limits: Limits = DEFAULT_LIMITS) -> Decision:
    """What to do for ``command``. ``now`` says which delayed retries are due.

    Raises NonDeterministicError for an id used again with other arguments, InvalidTransitionError for what the state
    does not allow, PayloadError for a payload over ``limits``.
    """
    handler = _DECIDE.get(type(command))
    if handler is None:
        raise InvalidTransitionError(
            f"the workflow returned {type(command).__name__}, not a command; return what a ctx method builds",
            run_id=state.run_id,
        )
    return handler(state, command, now, limits)


def _refuse(state: RunState, reason: str) -> NoReturn:
    raise InvalidTransitionError(reason, run_id=state.run_id)


def _drift(state: RunState, what: str, recorded: object, replayed: object, *, advice: str = "") -> NoReturn:
    shown = f"history={dumps(recorded)}; replay={dumps(replayed)}"
    raise NonDeterministicError(state.run_id, f"{what} changed: {shown}{advice}")


# --- endings --------------------------------------------------------------------------------------------------------


def _complete(state: RunState, command: cmd.Complete, now: datetime, limits: Limits) -> Decision:
    if state.lifecycle is RunStatus.CANCELLING:
        _refuse(state, "complete is not allowed while cancelling; return cancel, fail or timeout")
    command.output.check_size(what="output", limits=limits)
    return Decision((ev.RunCompleted(command.output),))


def _fail(state: RunState, command: cmd.Fail, now: datetime, limits: Limits) -> Decision:
    error = check_reason(command.error, what="error")
    if error is None:
        _refuse(state, "fail needs an error text")
    return Decision((ev.RunFailed(error),))


def _cancel(state: RunState, command: cmd.Cancel, now: datetime, limits: Limits) -> Decision:
    if state.cancellation is None:
        _refuse(state, "cancel without a durable cancellation request")
    return Decision((ev.RunCancelled(state.cancellation.request.reason),))


def _timeout(state: RunState, command: cmd.Timeout, now: datetime, limits: Limits) -> Decision:
    deadline = instants.utc(command.deadline, what="timeout deadline")
    return Decision((ev.RunTimedOut(deadline, check_reason(command.reason)),))


# --- progress and children ------------------------------------------------------------------------------------------


def _record_progress(state: RunState, command: cmd.RecordProgress, now: datetime, limits: Limits) -> Decision:
    payload = command.progress.to_payload(limits=limits)
    event = ev.RunProgressRecorded(payload)
    recorded = state.progress.get(event.progress_id)
    if recorded is None:
        return Decision((event,))
    if recorded != payload:
        _drift(state, f"progress {event.progress_id!r}", recorded.tree, payload.tree)
    _refuse(state, f"progress {event.progress_id!r} is already recorded; the workflow makes no forward progress")


def _link_child_operation(state: RunState, command: cmd.LinkChildOperation, now: datetime, limits: Limits) -> Decision:
    payload = command.child.to_payload(limits=limits)
    event = ev.ChildOperationLinked(payload)
    recorded = state.child_operations.get(event.reference_id)
    if recorded is None:
        return Decision((event,), guarded=event.flow_run_id is not None)
    if recorded != payload:
        _drift(state, f"child operation {event.reference_id!r}", recorded.tree, payload.tree)
    _refuse(state, f"child operation {event.reference_id!r} is already linked; the workflow makes no forward progress")


# --- steps ----------------------------------------------------------------------------------------------------------


def _schedule_step(state: RunState, command: cmd.ScheduleStep, now: datetime, limits: Limits) -> Decision:
    known = _recorded_step(state, command)
    if known is None:
        _check_new_step(command, now, limits)
    elif known.is_settled:
        _refuse(state, f"step {command.step_id!r} is already {known.status}; the workflow makes no forward progress")
    return _start_steps(state, (command,), now)


def _schedule_steps(state: RunState, command: cmd.ScheduleSteps, now: datetime, limits: Limits) -> Decision:
    if not command.steps:
        _refuse(state, "schedule_steps needs at least one step")
    seen: set[str] = set()
    for step in command.steps:
        check_id(step.step_id, what="step id")
        if step.step_id in seen:
            _refuse(state, f"schedule_steps names step {step.step_id!r} twice")
        seen.add(step.step_id)
    known = [_recorded_step(state, step) for step in command.steps]
    if all(step is not None and step.is_settled for step in known):
        _refuse(state, f"every step of the batch {sorted(seen)} has settled; the workflow makes no forward progress")
    for step, recorded in zip(command.steps, known, strict=True):
        if recorded is None:
            _check_new_step(step, now, limits)
    return _start_steps(state, command.steps, now)


def _recorded_step(state: RunState, command: cmd.ScheduleStep) -> StepSnapshot | None:
    """What history records of this id, compared with the command; None when the id is new."""
    step = state.steps.get(check_id(command.step_id, what="step id"))
    if step is None:
        return None
    if step.step_name != command.step_name:
        _drift(state, f"the name of step {step.step_id!r}", step.step_name, command.step_name)
    if step.input_payload != command.input:
        _drift(state, f"the input of step {step.step_id!r}", step.input_payload.tree, command.input.tree)
    if command.retry is not None and command.retry != step.retry:
        _drift(state, f"the retry policy of step {step.step_id!r}", step.retry.to_tree(), command.retry.to_tree())
    return step


def _check_new_step(command: cmd.ScheduleStep, now: datetime, limits: Limits) -> None:
    check_id(command.step_name, what="step name")
    command.input.check_size(what="step input", limits=limits)
    retry = command.retry or command.default_retry
    if retry.delay_ms:
        instants.after(now, retry.delay_ms, what="retry delay")


def _start_steps(state: RunState, steps: Sequence[cmd.ScheduleStep], now: datetime) -> Decision:
    """Create what is new, start what is pending and due, redeliver what runs; leave the rest."""
    created: list[ev.Event] = []
    started: list[ev.Event] = []
    run: list[str] = []
    for command in steps:
        step_id = str.__str__(command.step_id)  # the text itself, should an enum carry it
        step = state.steps.get(step_id)
        if step is None:
            retry = command.retry or command.default_retry
            created.append(ev.StepCreated(step_id, str.__str__(command.step_name), command.input, retry))
            started.append(ev.StepStarted(step_id, 1))
        elif step.status is StepStatus.PENDING:
            if step.retry_after is not None and step.retry_after > now:
                continue
            started.append(ev.StepStarted(step_id, step.attempt + 1))
        elif step.status is not StepStatus.RUNNING:
            continue
        run.append(step_id)
    return Decision((*created, *started), tuple(run))


# --- waits and hooks ------------------------------------------------------------------------------------------------


def _wait_until(state: RunState, command: cmd.WaitUntil, now: datetime, limits: Limits) -> Decision:
    resume_at = instants.utc(command.resume_at, what=f"resume_at of wait {command.wait_id!r}")
    wait_id = check_id(command.wait_id, what="wait id")
    wait = state.waits.get(wait_id)
    if wait is None:
        return Decision((ev.WaitCreated(wait_id, resume_at),))
    if wait.resume_at != resume_at:
        recorded, replayed = instants.to_text(wait.resume_at), instants.to_text(resume_at)
        _drift(state, f"the time of wait {wait_id!r}", recorded, replayed, advice=_NO_CLOCK)
    if wait.status is WaitStatus.WAITING:
        return PARK
    if wait.status is WaitStatus.CANCELLED:
        _refuse(state, f"wait {wait_id!r} was cancelled; {_CANCELLED}")
    _refuse(state, f"wait {wait_id!r} is already completed; the workflow makes no forward progress")


def _create_hook(state: RunState, command: cmd.CreateHook, now: datetime, limits: Limits) -> Decision:
    digest = tokens.digest(tokens.check_token(command.token))
    expires_at = command.expires_at
    if expires_at is not None:
        expires_at = instants.utc(expires_at, what=f"expires_at of hook {command.hook_id!r}")
    hook_id = check_id(command.hook_id, what="hook id")
    hook = state.hooks.get(hook_id)
    if hook is None:
        command.metadata.check_size(what="hook metadata", limits=limits)
        return Decision((ev.HookCreated(hook_id, digest, command.metadata, expires_at),), guarded=True)
    if hook.token_digest != digest:
        raise NonDeterministicError(state.run_id, f"the token of hook {hook_id!r} changed (values not shown)")
    if hook.metadata_payload != command.metadata:
        _drift(state, f"the metadata of hook {hook_id!r}", hook.metadata_payload.tree, command.metadata.tree)
    if hook.expires_at != expires_at:
        recorded = hook.expires_at and instants.to_text(hook.expires_at)
        replayed = expires_at and instants.to_text(expires_at)
        _drift(state, f"the deadline of hook {hook_id!r}", recorded, replayed, advice=_NO_CLOCK)
    if hook.status is HookStatus.ACTIVE:
        return PARK
    if hook.status is HookStatus.CANCELLED:
        _refuse(state, f"hook {hook_id!r} was cancelled; {_CANCELLED}")
    _refuse(state, f"hook {hook_id!r} is already {hook.status}; the workflow makes no forward progress")


_DECIDE: Mapping[type[cmd.Command], Callable[[RunState, Any, datetime, Limits], Decision]] = {
    cmd.Complete: _complete,
    cmd.Fail: _fail,
    cmd.Cancel: _cancel,
    cmd.Timeout: _timeout,
    cmd.RecordProgress: _record_progress,
    cmd.LinkChildOperation: _link_child_operation,
    cmd.ScheduleStep: _schedule_step,
    cmd.ScheduleSteps: _schedule_steps,
    cmd.WaitUntil: _wait_until,
    cmd.CreateHook: _create_hook,
}


# --- what needs no command ------------------------------------------------------------------------------------------


def repair_exhaustion(state: RunState) -> ev.RunRetryExhausted | None:
    """The event a crash left out: a step failed for good under fail_run, and the run was not told."""
    if state.unreported_failure is None:
        return None
    step = state.steps[state.unreported_failure]
    return ev.RunRetryExhausted(step.step_id, step.attempt, step.error or "")


def failure(state: RunState, step_id: str, *, error: str, failed_at: datetime) -> tuple[ev.Event, ...]:
    """The events for a failed attempt of a step: retry, hand back to the workflow, or end the run.

    A delay counts from ``failed_at``; it fitted the calendar when the step was declared, and now ends with it. An
    attempt that was running when cancellation was requested is not retried.
    """
    step = state.steps[step_id]
    late = step.status is StepStatus.CANCELLED
    return attempt_failed(step_id, step.attempt, step.retry, late=late, error=error, failed_at=failed_at)


def attempt_failed(
    step_id: str, attempt: int, retry: RetryPolicy, *, late: bool, error: str, failed_at: datetime
) -> tuple[ev.Event, ...]:
    """The same for whoever knows the attempt and not the state. ``late``: cancellation was requested while it ran."""
    if not late and attempt < retry.attempts:
        retry_after = instants.after_or_last(failed_at, retry.delay_ms) if retry.delay_ms else None
        return (ev.StepRetrying(step_id, attempt, error, retry_after),)
    failed = ev.StepFailed(step_id, attempt, error)
    if late or not retry.fails_run:
        return (failed,)
    return failed, ev.RunRetryExhausted(step_id, attempt, error)


DueEvent = ev.WaitCompleted | ev.HookExpired


def due_events(state: RunState, now: datetime) -> tuple[DueEvent, ...]:
    """Timers and hook deadlines that have passed, earliest first."""
    due: list[tuple[datetime, str, DueEvent]] = []
    for wait_id in state.open_waits:
        at = state.waits[wait_id].resume_at
        if at <= now:
            due.append((at, wait_id, ev.WaitCompleted(wait_id)))
    return tuple(event for _, _, event in sorted([*due, *_expired(state, now)], key=lambda item: item[:2]))


def expired_hooks(state: RunState, now: datetime) -> tuple[DueEvent, ...]:
    """Hook deadlines that have passed, earliest first."""
    return tuple(event for _, _, event in sorted(_expired(state, now), key=lambda item: item[:2]))


def _expired(state: RunState, now: datetime) -> list[tuple[datetime, str, DueEvent]]:
    hooks = [state.hooks[hook_id] for hook_id in state.active_hooks]
    return [
        (hook.expires_at, hook.hook_id, ev.HookExpired(hook.hook_id))
        for hook in hooks
        if hook.expires_at is not None and hook.expires_at <= now
    ]


def cancellation_conflict(recorded: CancellationRequest, asked: CancellationRequest) -> str | None:
    """How a repeated cancellation request contradicts the durable one; None when it does not."""
    if recorded == asked:
        return None
    return f"cancellation was requested with reason {recorded.reason!r}, not {asked.reason!r}"
