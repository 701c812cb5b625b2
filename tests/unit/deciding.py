"""Commands in few words, and how they are decided."""

from __future__ import annotations

from datetime import datetime

import pytest

from flow_app.core import commands as cmd
from flow_app.core import events as ev
from flow_app.core.decider import Decision, decide
from flow_app.core.payload import DEFAULT_LIMITS, Limits, Payload
from flow_app.core.policy import ChildOperationReference, RetryPolicy, WorkflowProgress
from flow_app.errors import FlowError
from tests.unit.builders import BEGUN, NOW, ONCE, at, extend, state_of

ENDLESS = RetryPolicy(2, 2**64 - 1)
TOO_LATE = RetryPolicy(2, 8000 * 366 * 86_400_000)  # a duration like any other, but it ends past the year 9999
SMALL = Limits(max_bytes=20)


def schedule(step_id: str = "a", name: str = "charge", value: object = None, retry: RetryPolicy | None = ONCE):
    return cmd.ScheduleStep(step_id, name, Payload.of(value), retry)


def batch(*steps: cmd.ScheduleStep) -> cmd.ScheduleSteps:
    return cmd.ScheduleSteps(steps)


def decided(before: tuple[ev.Event, ...], command: cmd.Command, *, now: datetime = NOW) -> Decision:
    """The decision in the state after these; its events are checked to fold."""
    state = state_of(*BEGUN, *before)
    untouched = state.snapshot()
    decision = decide(state, command, now=now)
    assert state.snapshot() == untouched, "deciding changes nothing"
    extend(state, decision.events)
    return decision


def refuse(
    before: tuple[ev.Event, ...],
    command: cmd.Command,
    error: type[FlowError],
    reason: str,
    limits: Limits = DEFAULT_LIMITS,
) -> FlowError:
    state = state_of(*BEGUN, *before)
    untouched = state.snapshot()
    with pytest.raises(error, match=reason) as caught:
        decide(state, command, now=NOW, limits=limits)
    assert type(caught.value) is error
    assert state.snapshot() == untouched
    return caught.value


def record(completed: int = 1, **more: object) -> cmd.RecordProgress:
    return cmd.RecordProgress(WorkflowProgress("p", completed, **more))  # type: ignore[arg-type]


def link(operation_id: str = "job-1", **more: object) -> cmd.LinkChildOperation:
    return cmd.LinkChildOperation(ChildOperationReference("c", "export", operation_id, **more))  # type: ignore[arg-type]


def wait_until(seconds: float = 60, wait_id: str = "w") -> cmd.WaitUntil:
    return cmd.WaitUntil(wait_id, at(seconds))


def create(
    token: str = "t0ken", metadata: object = None, expires: float | None = None, hook_id: str = "h"
) -> cmd.CreateHook:
    return cmd.CreateHook(hook_id, token, Payload.of(metadata), None if expires is None else at(expires))
