from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta, timezone

import pytest

from flow_app.core import tasks
from flow_app.errors import FlowError, PayloadError

AT = datetime(2026, 5, 4, 12, 0, 0, 5000, tzinfo=UTC)
AT_TEXT = "2026-05-04T12:00:00.005Z"

TASKS = [
    (tasks.DriveRun("r"), {"type": "drive_run", "run_id": "r"}),
    (tasks.ResumeWait("r", "w"), {"type": "resume_wait", "run_id": "r", "wait_id": "w"}),
    (
        tasks.ResumeHook("r", "h", {"ok": True}),
        {"type": "resume_hook", "run_id": "r", "hook_id": "h", "payload": {"ok": True}},
    ),
    (
        tasks.ResumeHookByToken("t", [1, None]),
        {"type": "resume_hook_by_token", "token": "t", "payload": [1, None]},
    ),
    (tasks.DisposeHook("r", "h"), {"type": "dispose_hook", "run_id": "r", "hook_id": "h"}),
    (tasks.DisposeHookByToken("t"), {"type": "dispose_hook_by_token", "token": "t"}),
    (tasks.ResumeScheduledRun("r", AT), {"type": "resume_scheduled_run", "run_id": "r", "now": AT_TEXT}),
    (tasks.ResumeDueWaits(AT), {"type": "resume_due_waits", "now": AT_TEXT}),
    (tasks.ResumeDueRetries(AT), {"type": "resume_due_retries", "now": AT_TEXT}),
    (tasks.RunStep("r", "s", 2), {"type": "run_step", "run_id": "r", "step_id": "s", "attempt": 2}),
]


def test_there_are_nine_tasks_and_one_of_our_own():
    assert len({wire["type"] for _, wire in TASKS}) == 9 + 1


@pytest.mark.parametrize(("task", "wire"), TASKS, ids=lambda value: type(value).__name__)
def test_scenario_127_a_task_has_exactly_these_fields(task, wire):
    assert task.to_wire() == wire


@pytest.mark.parametrize(("task", "wire"), TASKS, ids=lambda value: type(value).__name__)
def test_scenario_127_a_task_is_read_back_whatever_the_order_of_its_fields(task, wire):
    backwards = dict(reversed(json.loads(json.dumps(wire)).items()))
    assert tasks.task_from_wire(backwards) == task


def test_a_scheduled_run_may_leave_the_time_to_the_clock():
    task = tasks.ResumeScheduledRun("r")
    assert task.to_wire() == {"type": "resume_scheduled_run", "run_id": "r", "now": None}
    assert tasks.task_from_wire({"type": "resume_scheduled_run", "run_id": "r"}) == task
    assert tasks.task_from_wire(task.to_wire()) == task


def test_the_time_of_a_task_is_written_in_utc():
    local = AT.astimezone(timezone(timedelta(hours=2)))
    assert tasks.ResumeDueWaits(local).to_wire() == tasks.ResumeDueWaits(AT).to_wire()


def test_a_naive_time_of_a_task_is_refused_not_guessed():
    with pytest.raises(FlowError, match="naive"):
        tasks.ResumeDueWaits(datetime(2026, 5, 4, 12)).to_wire()


@pytest.mark.parametrize(("task", "wire"), TASKS, ids=lambda value: type(value).__name__)
def test_scans_and_tokens_name_no_run(task, wire):
    assert task.explicit_run_id == wire.get("run_id")


@pytest.mark.parametrize(
    "wire",
    [
        {},
        {"type": None},
        {"type": []},
        {"type": "explode"},
        {"type": "drive_run"},
        {"type": "drive_run", "run_id": "r", "extra": 1},
        {"type": "resume_wait", "run_id": "r"},
        {"type": "resume_due_waits"},
        {"type": "resume_due_waits", "now": "noon"},
        {"type": "resume_due_waits", "now": 5},
        {"type": "resume_scheduled_run", "run_id": "r", "now": "0001-01-01T00:00:00+05:00"},
    ],
    ids=str,
)
def test_a_task_of_another_shape_is_a_payload_error(wire):
    with pytest.raises(PayloadError):
        tasks.task_from_wire(wire)


def test_a_refused_task_does_not_show_its_token():
    with pytest.raises(PayloadError) as caught:
        tasks.task_from_wire({"type": "dispose_hook_by_token", "token": "s3cret", "extra": 1})
    assert "s3cret" not in str(caught.value) + repr(caught.value)
