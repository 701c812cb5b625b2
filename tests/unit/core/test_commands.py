from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest

from flow_app.core import commands as cmd
from flow_app.core.payload import NULL, Limits, Payload
from flow_app.core.policy import DEFAULT_RETRY, ChildOperationReference, RetryPolicy, WorkflowProgress
from flow_app.errors import PayloadError

AT = datetime(2026, 5, 4, 12, tzinfo=UTC)
PROGRESS = {"progress_id": "p", "completed": 1}
CHILD = {"reference_id": "r", "kind": "k", "operation_id": "o"}
STEP = {"step_id": "a", "step_name": "charge", "input": {"n": 1}}


@pytest.mark.parametrize(
    ("wire", "command"),
    [
        ({"type": "complete", "output": [1]}, cmd.Complete(Payload.of([1]))),
        ({"type": "complete"}, cmd.Complete(NULL)),
        ({"type": "fail", "error": "boom"}, cmd.Fail("boom")),
        ({"type": "cancel"}, cmd.Cancel()),
        ({"type": "timeout", "deadline": "2026-05-04T14:00:00+02:00"}, cmd.Timeout(AT)),
        ({"type": "timeout", "deadline": "2026-05-04T12:00:00Z", "reason": "slow"}, cmd.Timeout(AT, "slow")),
        (
            {
                "type": "record_progress",
                "progress": {**PROGRESS, "total": 2, "message": "half", "details": {"$decimal": "1"}},
            },
            cmd.RecordProgress(WorkflowProgress("p", 1, 2, "half", {"$decimal": "1"})),
        ),
        (
            {"type": "link_child_operation", "child": {**CHILD, "flow_run_id": "run-2", "metadata": 5}},
            cmd.LinkChildOperation(ChildOperationReference("r", "k", "o", "run-2", 5)),
        ),
        (
            {"type": "schedule_step", **STEP, "retry": {"max_attempts": 2, "delay_ms": 5}},
            cmd.ScheduleStep("a", "charge", Payload.of({"n": 1}), RetryPolicy(2, 5)),
        ),
        (
            {"type": "schedule_steps", "steps": [STEP, {**STEP, "step_id": "b"}]},
            cmd.ScheduleSteps(
                (
                    cmd.ScheduleStep("a", "charge", Payload.of({"n": 1})),
                    cmd.ScheduleStep("b", "charge", Payload.of({"n": 1})),
                )
            ),
        ),
        ({"type": "schedule_steps", "steps": []}, cmd.ScheduleSteps(())),
        ({"type": "wait_until", "wait_id": "w", "resume_at": "2026-05-04T12:00:00Z"}, cmd.WaitUntil("w", AT)),
        (
            {
                "type": "create_hook",
                "hook_id": "h",
                "token": "t",
                "metadata": {"kind": "x"},
                "expires_at": "2026-05-04T12:00:00Z",
            },
            cmd.CreateHook("h", "t", Payload.of({"kind": "x"}), AT),
        ),
    ],
    ids=lambda value: value.get("type") if isinstance(value, dict) else "",
)
def test_a_command_is_read_from_the_wire(wire, command):
    assert cmd.command_from_wire(wire) == command
    assert command.type == wire["type"]


@pytest.mark.parametrize("null", [False, True], ids=["missing", "null"])
def test_scenario_083_what_a_command_leaves_out_has_its_default(null):
    def read(wire: dict[str, object], **optional: None) -> cmd.Command:
        return cmd.command_from_wire({**wire, **(optional if null else {})})

    step = read({"type": "schedule_step", "step_id": "a", "step_name": "charge"}, input=None, retry=None)
    assert isinstance(step, cmd.ScheduleStep)
    assert (step.input, step.retry, step.default_retry) == (NULL, None, DEFAULT_RETRY)
    assert RetryPolicy(3, 0) == DEFAULT_RETRY

    hook = read({"type": "create_hook", "hook_id": "h", "token": "t"}, metadata=None, expires_at=None)
    assert hook == cmd.CreateHook("h", "t", NULL, None)

    progress = cmd.command_from_wire(
        {
            "type": "record_progress",
            "progress": {**PROGRESS, **({"total": None, "message": None, "details": None} if null else {})},
        }
    )
    assert progress == cmd.RecordProgress(WorkflowProgress("p", 1, None, None, None))
    child = cmd.command_from_wire(
        {
            "type": "link_child_operation",
            "child": {**CHILD, **({"flow_run_id": None, "metadata": None} if null else {})},
        }
    )
    assert child == cmd.LinkChildOperation(ChildOperationReference("r", "k", "o", None, None))


@pytest.mark.parametrize(
    "wire",
    [
        {},
        {"type": None},
        {"type": []},
        {"type": {}},
        {"type": "sleep"},
        {"type": "fail"},
        {"type": "timeout"},
        {"type": "timeout", "deadline": None},
        {"type": "timeout", "deadline": "tomorrow"},
        {"type": "timeout", "deadline": "0001-01-01T00:00:00+05:00"},
        {"type": "record_progress"},
        {"type": "record_progress", "progress": {"progress_id": "p"}},
        {"type": "record_progress", "progress": {**PROGRESS, "percent": 5}},
        {"type": "record_progress", "progress": 5},
        {"type": "link_child_operation", "child": {"reference_id": "r"}},
        {"type": "schedule_step", "step_id": "a"},
        {"type": "schedule_step", **STEP, "retry": 5},
        {"type": "schedule_step", **STEP, "retry": {"max_attempts": 3}},
        {"type": "schedule_step", **STEP, "retry": {"max_attempts": -1, "delay_ms": 0}},
        {"type": "schedule_step", **STEP, "retry": {"max_attempts": 1, "delay_ms": 0, "on_exhausted": "explode"}},
        {"type": "schedule_step", **STEP, "input": float("nan")},
        {"type": "schedule_steps"},
        {"type": "schedule_steps", "steps": None},
        {"type": "schedule_steps", "steps": ["a"]},
        {"type": "schedule_steps", "steps": [{}]},
        {"type": "wait_until", "wait_id": "w"},
        {"type": "wait_until", "wait_id": "w", "resume_at": 5},
        {"type": "create_hook", "hook_id": "h"},
        {"type": "create_hook", "hook_id": "h", "token": "t", "expires_at": "never"},
    ],
    ids=lambda wire: str(wire)[:70],
)
def test_a_command_of_another_shape_is_a_payload_error(wire):
    with pytest.raises(PayloadError):
        cmd.command_from_wire(wire)


def test_payloads_of_a_command_are_measured_and_user_data_is_escaped():
    limits = Limits(max_bytes=10)
    with pytest.raises(PayloadError, match=r"^output cannot be stored"):
        cmd.command_from_wire({"type": "complete", "output": "x" * 20}, limits=limits)
    with pytest.raises(PayloadError, match=r"^step input cannot be stored"):
        cmd.command_from_wire({"type": "schedule_step", **STEP, "input": "x" * 20}, limits=limits)
    with pytest.raises(PayloadError, match=r"^hook metadata cannot be stored"):
        cmd.command_from_wire(
            {"type": "create_hook", "hook_id": "h", "token": "t", "metadata": "x" * 20}, limits=limits
        )
    command = cmd.command_from_wire({"type": "complete", "output": {"$decimal": "1"}})
    assert command == cmd.Complete(Payload.of({"$decimal": "1"}))


def test_a_refused_hook_does_not_show_its_token():
    with pytest.raises(PayloadError) as caught:
        cmd.command_from_wire({"type": "create_hook", "token": "s3cret", "hook_id": "h", "expires_at": "never"})
    assert "s3cret" not in str(caught.value) + repr(caught.value)


def test_commands_compare_instants_whatever_their_zone():
    assert cmd.WaitUntil("w", AT) == cmd.WaitUntil("w", AT.astimezone(timezone(timedelta(hours=2))))
