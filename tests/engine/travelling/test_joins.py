"""What follows from an outcome: the next attempt, or the run goes on, or neither."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from flow_app import RetryPolicy, step, workflow
from flow_app.core.context import StepContext
from flow_app.core.tasks import RunStep

pytestmark = pytest.mark.django_db(transaction=True)


# --- retries ----------------------------------------------------------------------------------------------------------


def failing(times: int, retry: RetryPolicy) -> None:
    @step("flaky", retry=retry, dispatch="task")
    def flaky(ctx: StepContext) -> int:
        if ctx.attempt <= times:
            raise ValueError(f"attempt {ctx.attempt}")
        return ctx.attempt

    @workflow("w")
    def w(ctx: Any) -> Any:
        if ctx.step_completed("s"):
            return ctx.complete(ctx.step_output("s"))
        error = ctx.step_failed("s")
        return ctx.complete({"failed": error}) if error else ctx.schedule_step("s", flaky)


def test_a_retry_without_delay_is_a_message_and_no_drive(broker):
    failing(2, RetryPolicy.fixed(3))
    broker.engine.start("w", run_id="r")
    broker.drive()
    for attempt in (1, 2):
        assert broker.box.steps == [RunStep("r", "s", attempt)]
        assert broker.deliver("s") == [True]
        assert broker.box.drives == []
    assert broker.run(RunStep("r", "s", 1)) is False  # late
    broker.work_off()
    assert broker.engine.snapshot("r").output == 3
    assert broker.types()[2:] == [
        "step_created", "step_started", *["step_retrying", "step_started"] * 2, "step_completed", "run_completed",
    ]  # fmt: skip


def test_a_retry_with_delay_parks_the_run_until_it_is_due(broker):
    failing(1, RetryPolicy.fixed(2, timedelta(minutes=1)))
    broker.engine.start("w", run_id="r")
    broker.work_off()
    row = broker.store.row("r")
    assert (row.steps_out, row.pending_retries, row.status, row.wake_reason) == (0, 1, "suspended", "retry")
    assert row.wake_at == row.timer_at == broker.clock.now() + timedelta(minutes=1)
    broker.pass_time(59)
    assert broker.box.drives == []
    broker.pass_time(1)
    broker.work_off()
    assert broker.engine.snapshot("r").output == 2


def test_a_delayed_retry_in_a_batch_wakes_the_run_while_its_siblings_are_still_out(broker, batch):
    @step("later", retry=RetryPolicy.fixed(2, timedelta(seconds=5)))
    def later(ctx: StepContext) -> int:
        if ctx.attempt == 1:
            raise ValueError
        return 1

    @workflow("w")
    def w(ctx: Any) -> Any:
        if ctx.step_completed("a") and ctx.step_completed("l"):
            return ctx.complete()
        return ctx.schedule_steps([ctx.step("a", "job"), ctx.step("l", later)])

    broker.engine.start(w, run_id="r")
    broker.drive()
    broker.deliver("l")
    assert broker.store.row("r").wake_at == broker.clock.now() + timedelta(seconds=5)
    broker.pass_time(6)
    broker.drive()
    assert broker.store.row("r").steps_out == 2
    assert broker.take("l") == RunStep("r", "l", 2)
    broker.run(RunStep("r", "l", 2))
    assert broker.box.drives == []
    broker.work_off()
    assert broker.engine.snapshot("r").status == "completed"


@pytest.mark.parametrize(
    ("retry", "outcome"),
    [(RetryPolicy.fixed(2), "retry_exhausted"), (RetryPolicy.fixed(2).continue_workflow_on_failure(), "completed")],
    ids=["fails-the-run", "goes-back"],
)
def test_no_attempt_left(broker, retry, outcome):
    failing(9, retry)
    broker.engine.start("w", run_id="r")
    broker.work_off()
    snapshot = broker.engine.snapshot("r")
    assert snapshot.terminal_outcome.type == outcome
    assert snapshot.steps["s"].attempt == 2
    row = broker.store.row("r")
    assert (row.status, row.steps_out, row.wake_at, row.pending_retries) == (snapshot.status, 0, None, 0)
    assert broker.out() == []


def test_a_member_that_fails_the_run_recalls_the_others(broker, batch, calls):
    @step("bad", retry=RetryPolicy.none())
    def bad() -> None:
        raise ValueError

    @workflow("w")
    def w(ctx: Any) -> Any:
        return ctx.schedule_steps([ctx.step("a", "job"), ctx.step("x", bad), ctx.step("b", "job")])

    broker.engine.start(w, run_id="r")
    broker.drive()
    assert broker.deliver("x") == [True]
    assert broker.store.row("r").status == "failed"
    assert broker.out() == []
    assert broker.deliver("a", "b") == [False, False]
    assert calls == {}


# --- any --------------------------------------------------------------------------------------------------------------


def test_a_run_that_waits_for_something_else_is_asked_after_each_outcome(broker, batch):
    asked: list[list[str]] = []

    @workflow("w")
    def w(ctx: Any) -> Any:
        asked.append([step_id for step_id in "abc" if ctx.step_completed(step_id)])
        if ctx.hook_received("go") and len(asked[-1]) == 3:
            return ctx.complete()
        if not ctx.hook_created("go"):
            return ctx.create_hook("go")
        if ctx.step_scheduled("a") and ctx.hook_received("go"):
            return ctx.wait_until("later", broker_day)
        return ctx.schedule_steps([ctx.step(step_id, "job") for step_id in "abc"])

    broker_day = broker.clock.now() + timedelta(days=1)
    broker.engine.start(w, run_id="r")
    broker.drive()
    broker.engine.resume_hook("r", "go")
    broker.drive()
    row = broker.store.row("r")
    assert (row.steps_out, row.steps_awaited, row.wake_at) == (3, "any", broker_day)
    for step_id in "abc":
        broker.deliver(step_id)
        assert broker.box.drives == ["r"]
        broker.drive()
    assert asked[-3:] == [["a"], ["a", "b"], ["a", "b", "c"]]
    assert broker.engine.snapshot("r").status == "completed"


def test_two_outcomes_before_the_run_is_driven_are_one_hint(broker, batch):
    test_steps = ["a", "b", "c"]

    @workflow("w")
    def w(ctx: Any) -> Any:
        if not ctx.hook_created("go"):
            return ctx.create_hook("go")
        if not ctx.hook_received("go"):
            return ctx.schedule_steps([ctx.step(step_id, "job") for step_id in test_steps])
        return ctx.wait_until("later", broker.clock.now().replace(year=2040))

    broker.engine.start(w, run_id="r")
    broker.drive()
    broker.engine.resume_hook("r", "go")
    broker.box.steps.clear()
    broker.drive()
    for step_id in ("a", "b"):
        broker.run(RunStep("r", step_id, 1))
    assert broker.box.drives == ["r"]


def test_outcomes_while_the_run_is_driven_send_no_hint_and_are_seen(broker, batch, calls):
    """The driver's compare-and-swap cannot park past an outcome that it has not seen."""

    @step("inner")
    def inner() -> None:
        for step_id in "abc":
            broker.run(RunStep("r", step_id, 1))
        assert broker.box.drives == []

    @workflow("w")
    def w(ctx: Any) -> Any:
        if not ctx.hook_created("go"):
            return ctx.create_hook("go")
        if not ctx.hook_received("go"):
            return ctx.schedule_steps([ctx.step(step_id, "job") for step_id in "abc"])
        if not ctx.step_completed("inner"):
            return ctx.schedule_step("inner", inner)
        return ctx.complete([ctx.step_completed(step_id) for step_id in "abc"])

    broker.engine.start(w, run_id="r")
    broker.drive()
    broker.engine.resume_hook("r", "go")
    broker.drive()
    assert broker.engine.snapshot("r").output == [True] * 3
    assert calls == {"a": 1, "b": 1, "c": 1}
