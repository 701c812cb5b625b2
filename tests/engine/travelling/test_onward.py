"""A worker goes on with what would come to it anyhow: one member of the batch it sent, and the drive after the last."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from typing import Any

import pytest

from flow_app import RetryPolicy, step, workflow
from flow_app.conf import Slice
from flow_app.core.context import StepContext
from flow_app.core.tasks import DriveRun, RunStep
from flow_app.engine import shutdown
from flow_app.engine.onward import Onward
from tests.engine.mailbox import Broker

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def broker(broker: Broker) -> Broker:
    broker.box.shared = True
    return broker


def test_who_sends_a_batch_keeps_one_member_and_whose_outcome_is_awaited_drives_on(broker, batch, calls):
    broker.engine.start("batch", run_id="r")
    broker.drive()
    assert broker.box.steps == [RunStep("r", "a", 1), RunStep("r", "b", 1)]
    assert calls == {"c": 1}
    assert broker.deliver("a", "b") == [True, True]
    assert broker.box.drives == []
    assert broker.engine.snapshot("r").output == ["A", "B", "C"]
    assert calls == {"a": 1, "b": 1, "c": 1}


def test_where_steps_have_workers_of_their_own_every_member_travels_and_the_drive_too(broker, batch):
    broker.box.shared = False
    broker.engine.start("batch", run_id="r")
    broker.drive()
    assert broker.deliver("a", "b", "c") == [True] * 3
    assert broker.box.drives == ["r"]


@pytest.mark.parametrize("declared", [{"queue": "gpu"}, {"dispatch": "task"}], ids=["queue", "task"])
def test_what_is_declared_to_travel_does(broker, calls, declared):
    @step("far", **declared)
    def far(ctx: StepContext) -> None:
        calls[ctx.step_id] += 1

    @workflow("w")
    def w(ctx: Any) -> Any:
        done = all(ctx.step_completed(step_id) for step_id in "ab")
        return ctx.complete() if done else ctx.schedule_steps([ctx.step(step_id, far) for step_id in "ab"])

    broker.engine.start("w", run_id="r")
    broker.drive()
    assert len(broker.box.steps) == 2
    assert calls == {}
    broker.deliver("a", "b")
    # Who works for a queue of its own drives no run.
    assert broker.box.drives == (["r"] if "queue" in declared else [])
    broker.work_off()
    assert broker.engine.snapshot("r").status == "completed"


def test_a_host_that_drives_a_run_itself_runs_no_member_of_a_batch(broker, batch, calls):
    broker.engine.start("batch", run_id="r")
    broker.engine.drive("r")
    assert len(broker.box.steps) == 3
    assert calls == {}


def test_many_batches_in_a_row_take_a_message_each(broker, calls):
    @step("job")
    def job(ctx: StepContext) -> None:
        calls[ctx.step_id] += 1

    @workflow("w")
    def w(ctx: Any) -> Any:
        for round_ in range(30):
            ids = [f"{round_}.{n}" for n in range(2)]
            if not all(ctx.step_completed(step_id) for step_id in ids):
                return ctx.schedule_steps([ctx.step(step_id, job) for step_id in ids])
        return ctx.complete()

    broker.engine.start("w", run_id="r")
    broker.drive()
    messages = 0
    while broker.box.steps:
        messages += 1
        broker.run(broker.box.steps.pop(0))
    assert broker.engine.snapshot("r").status == "completed"
    assert broker.box.drives == []
    assert set(calls.values()) == {1}
    assert messages == 30


def test_errors_of_what_follows_are_not_those_of_the_task(broker, batch, caplog):
    @workflow("w")
    def w(ctx: Any) -> Any:
        if all(ctx.step_completed(step_id) for step_id in "ab"):
            raise ValueError("deployed today")
        return ctx.schedule_steps([ctx.step(step_id, "job") for step_id in "ab"])

    broker.engine.start("w", run_id="r")
    broker.drive()
    assert broker.deliver("a") == [True]
    assert broker.store.row("r").blocked_code == "runtime"
    assert "after another task" in caplog.text


def test_a_member_that_is_kept_may_fail_and_is_tried_again_by_a_message(broker):
    @step("flaky", retry=RetryPolicy.fixed(2))
    def flaky(ctx: StepContext) -> int:
        if ctx.attempt == 1:
            raise ValueError
        return ctx.attempt

    @workflow("w")
    def w(ctx: Any) -> Any:
        done = all(ctx.step_completed(step_id) for step_id in "ab")
        return ctx.complete() if done else ctx.schedule_steps([ctx.step(step_id, flaky) for step_id in "ab"])

    broker.engine.start("w", run_id="r")
    broker.drive()
    assert broker.box.steps == [RunStep("r", "a", 1), RunStep("r", "b", 2)]
    broker.work_off()
    assert broker.engine.snapshot("r").status == "completed"


# --- what is held back ------------------------------------------------------------------------------------------------


def test_one_task_is_held_at_a_time(broker):
    onward = Onward(broker.engine.services)
    assert onward.takes(DriveRun("r"), build=None)
    assert not onward.takes(DriveRun("s"), build=None)
    assert onward.release() == DriveRun("r")
    assert onward.release() is None
    assert onward.takes(RunStep("r", "a", 1), build=None)


@pytest.mark.parametrize(
    "options",
    [{"drive_slice": Slice(steps=0)}, {"drive_slice": Slice(seconds=0)}],
    ids=["steps", "seconds"],
)
def test_nothing_is_held_once_the_slice_is_over(options):
    broker = Broker(**options)
    broker.box.shared = True
    assert not Onward(broker.engine.services).takes(DriveRun("r"), build=None)


def test_time_that_passes_ends_the_slice(broker):
    onward = Onward(broker.engine.services)
    broker.clock.advance(timedelta(minutes=2))
    assert not onward.takes(DriveRun("r"), build=None)


@pytest.mark.parametrize("task", [DriveRun("r"), RunStep("r", "a", 1)], ids=["drive", "step"])
def test_a_worker_that_is_told_to_stop_sends_what_it_holds(broker, task):
    onward = Onward(broker.engine.services)
    assert onward.takes(task, build=None)
    shutdown.request()
    try:
        assert onward.release() is None
        assert not onward.takes(task, build=None)
    finally:
        shutdown.withdraw()
    sent: Counter[Any] = Counter([*map(DriveRun, broker.box.drives), *broker.box.steps])
    assert sent == {task: 1}
