"""Workers that die or stand still while they have an attempt; brokers and databases that are away."""

from __future__ import annotations

from collections import Counter
from contextlib import nullcontext
from datetime import timedelta
from typing import Any

import pytest
from django.db import OperationalError, connection, transaction

from flow_app import RetryPolicy, RuntimeBuildCompatibility, errors, step, workflow
from flow_app.authoring import registry
from flow_app.core.context import StepContext
from flow_app.core.tasks import RunStep
from flow_app.models import StepExecution
from flow_app.store import DjangoEventStore
from tests.engine.logbook import alone
from tests.engine.mailbox import Broker, Died

pytestmark = pytest.mark.django_db(transaction=True)


# --- dead workers -----------------------------------------------------------------------------------------------------


def mortal(deaths: int, *, timeout: timedelta | None = None) -> Counter[str]:
    ran: Counter[str] = Counter()

    @step("mortal", dispatch="task", retry=RetryPolicy.fixed(2).continue_workflow_on_failure(), timeout=timeout)
    def body(ctx: StepContext) -> str:
        ran[str(ctx.attempt)] += 1
        if sum(ran.values()) <= deaths:
            raise Died
        return "lived"

    @workflow("w")
    def w(ctx: Any) -> Any:
        if ctx.step_completed("s"):
            return ctx.complete(ctx.step_output("s"))
        error = ctx.step_failed("s")
        return ctx.complete(error) if error else ctx.schedule_step("s", body)

    return ran


def die_and_wait(broker: Broker, *, seconds: float = 31) -> None:
    with pytest.raises(Died):
        broker.deliver("s")
    broker.pass_time(seconds)


def test_the_attempt_of_a_dead_worker_is_delivered_again_when_its_lease_is_over(broker):
    ran = mortal(1)
    broker.engine.start("w", run_id="r")
    broker.drive()
    with pytest.raises(Died):
        broker.deliver("s")
    broker.pass_time(29)
    assert broker.run(RunStep("r", "s", 1)) is False
    broker.pass_time(2)
    broker.work_off()
    assert broker.engine.snapshot("r").output == "lived"
    assert ran == {"1": 2}
    assert broker.types().count("step_started") == 1


def test_deliveries_are_counted_before_the_body_runs_and_end_in_worker_lost(broker):
    ran = mortal(99)
    broker.engine.start("w", run_id="r")
    broker.drive()
    for attempt in ("1", "2"):
        for delivery in range(1, 6):
            die_and_wait(broker)
            assert ran[attempt] == StepExecution.objects.get().deliveries == delivery
        assert broker.deliver("s") == [True]
    broker.work_off()
    assert broker.engine.snapshot("r").output == "worker lost"
    assert ran == {"1": 5, "2": 5}


def test_a_step_may_be_given_to_one_worker_alone(broker):
    ran: list[int] = []

    @step("once", dispatch="task", retry=RetryPolicy.none(), deliveries=1)
    def once(ctx: StepContext) -> None:
        ran.append(ctx.attempt)
        raise Died

    broker.engine.start(alone(once), run_id="r")
    broker.drive()
    die_and_wait(broker)
    broker.work_off()
    assert broker.engine.snapshot("r").error == "worker lost"
    assert ran == [1]


def test_who_was_thought_dead_commits_nothing(broker, batch):
    """A worker that stood still for longer than its lease finds the attempt given to another."""
    results: list[Any] = []

    @step("frozen", dispatch="task")
    def frozen(ctx: StepContext) -> str:
        if not results:
            results.append("frozen")
            broker.pass_time(31)
            assert broker.run(broker.take("s")) is True
            return "old"
        return "new"

    broker.engine.start(alone(frozen), run_id="r")
    broker.drive()
    with pytest.raises(errors.LeaseLostError, match="no longer this worker's"):
        broker.deliver("s")
    broker.work_off()
    assert broker.engine.snapshot("r").output == "new"


def test_a_worker_without_the_code_counts_no_delivery(broker):
    mortal(0)
    broker.engine.start("w", run_id="r")
    broker.drive()
    with registry.steps.isolated():
        registry.steps._entries = {}
        with pytest.raises(errors.StepNotRegisteredError):
            broker.deliver("s")
    assert StepExecution.objects.get().deliveries == 0
    broker.pass_time(31)
    broker.work_off()
    assert broker.engine.snapshot("r").output == "lived"


def test_a_worker_of_another_build_counts_no_delivery(broker):
    mortal(0)
    broker.engine.services.builds = RuntimeBuildCompatibility("v1")
    broker.box.builds = {"v1"}
    broker.engine.start("w", run_id="r")
    broker.drive()
    other = broker.worker()
    other.services.builds = RuntimeBuildCompatibility("v2")
    with pytest.raises(errors.RuntimeBuildUnavailableError):
        broker.run(broker.box.steps[0], engine=other)
    assert StepExecution.objects.get().deliveries == 0
    broker.work_off()
    assert broker.engine.snapshot("r").output == "lived"


# --- field reports ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["refused", "closed"])
def test_field_report_46a_a_lost_connection_does_not_lose_the_outcome_of_a_step_that_travels(broker, how):
    if how == "closed" and connection.vendor == "sqlite":
        pytest.skip("SQLite has no server to lose")
    bodies: list[int] = []
    refusals = iter(range(30))

    def refuse(execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        if bodies and next(refusals, None) is not None:
            raise OperationalError("server closed the connection unexpectedly")
        return execute(sql, params, many, context)

    @step("pays", dispatch="task")
    def pays() -> str:
        bodies.append(1)
        if how == "closed":
            connection.connection.close()
        return "receipt"

    broker.engine.start(alone(pays), run_id="r")
    broker.drive()
    with connection.execute_wrapper(refuse) if how == "refused" else nullcontext():
        assert broker.deliver("s") == [True]
    broker.work_off()
    assert bodies == [1]
    assert broker.engine.snapshot("r").output == "receipt"


@pytest.mark.skipif(connection.vendor == "sqlite", reason="SQLite has no server to lose, nor a clock")
@pytest.mark.parametrize("dispatch", ["task", None])
def test_field_report_46a_nor_the_outcome_of_a_step_so_long_that_the_clock_is_to_be_read_again(dispatch):
    broker = Broker(store=DjangoEventStore())
    bodies: list[int] = []

    @step("pays", dispatch=dispatch)
    def pays() -> str:
        bodies.append(1)
        then, at = broker.store.clock._reading
        broker.store.clock._reading = (then, at - 301)
        connection.connection.close()
        return "receipt"

    @workflow("w")
    def w(ctx: Any) -> Any:
        return ctx.complete(ctx.step_output("s")) if ctx.step_completed("s") else ctx.schedule_step("s", pays)

    broker.engine.start(w, run_id="r")
    broker.work_off()
    assert broker.engine.snapshot("r").output == "receipt"
    assert bodies == [1]


@pytest.mark.parametrize("dispatch", ["task", None])
@pytest.mark.parametrize("ending", ["returns", "raises"])
def test_a_body_that_leaves_autocommit_off_fails_and_hides_no_outcome(broker, dispatch, ending):
    """Else all that this worker commits from then on is lost when the connection is closed."""
    retry = RetryPolicy.none().continue_workflow_on_failure()

    @step("careless", dispatch=dispatch, retry=retry)
    def careless() -> str:
        transaction.set_autocommit(False)
        if ending == "raises":
            raise ValueError("careless")
        return "written"

    @workflow("w")
    def w(ctx: Any) -> Any:
        error = ctx.step_failed("s")
        return ctx.complete(error) if error else ctx.schedule_step("s", careless)

    broker.engine.start(w, run_id="r")
    broker.work_off()
    connection.close()
    assert ("left autocommit off" if ending == "returns" else "careless") in broker.engine.snapshot("r").output


def test_a_commit_that_nobody_heard_of_does_not_bring_back_a_step_that_is_done(broker, batch, calls, monkeypatch):
    """The note of a step is written once. Else its body runs again, and the log says twice that it is completed."""
    write = "append_and_send" if connection.vendor == "postgresql" else "transact"
    act = getattr(broker.store, write)
    lost: list[str] = []

    def lose_the_answer(*what: Any, **how: Any) -> Any:
        answer = act(*what, **how)
        if not lost and broker.out():
            lost.append("the answer")
            assert broker.worker().run_step("r", "a", 1)
            raise OperationalError("server closed the connection unexpectedly")
        return answer

    broker.engine.start("batch", run_id="r")
    with monkeypatch.context() as patch:
        patch.setattr(broker.store, write, lose_the_answer)
        broker.drive()
    assert lost
    assert broker.out() == ["b", "c"]
    broker.work_off()
    assert calls == {"a": 1, "b": 1, "c": 1}
    assert broker.engine.snapshot("r").output == ["A", "B", "C"]


def test_field_report_17_a_run_that_waits_is_no_step_and_outlives_every_limit(broker, batch, calls):
    @step("short", timeout=timedelta(seconds=1), dispatch="task")
    def short(ctx: StepContext) -> str:
        calls[ctx.step_id] += 1
        return "done"

    @workflow("w")
    def w(ctx: Any) -> Any:
        if not ctx.step_completed("s"):
            return ctx.schedule_step("s", short)
        return ctx.complete(ctx.hook_payload("go")) if ctx.hook_received("go") else ctx.create_hook("go")

    broker.engine.start(w, run_id="r")
    broker.work_off()
    row = broker.store.row("r")
    assert (row.wake_at, row.lease_expires_at, broker.out()) == (None, None, [])
    for _ in range(5):
        broker.pass_time(86_400 * 365)
    assert (broker.box.drives, broker.box.steps) == ([], [])
    broker.engine.resume_hook("r", "go", "at last")
    broker.work_off()
    assert broker.engine.snapshot("r").output == "at last"
    assert calls == {"s": 1}


def test_a_publish_that_fails_is_nobodys_error_and_is_healed(broker, batch, monkeypatch, caplog):
    def refuse(*args: Any, **kwargs: Any) -> None:
        raise ConnectionError("the broker is away")

    broker.engine.start("batch", run_id="r")
    with monkeypatch.context() as patch:
        patch.setattr(broker.box, "dispatch_step", refuse, raising=False)
        broker.drive()
    assert broker.box.steps == []
    assert "failed after commit" in caplog.text
    broker.pass_time(31)
    assert len(broker.box.steps) == 3
    with monkeypatch.context() as patch:
        patch.setattr(broker.box, "dispatch_for_build", refuse, raising=False)
        broker.deliver("a", "b", "c")
    assert broker.box.drives == []
    broker.tick()
    broker.work_off()
    assert broker.engine.snapshot("r").output == ["A", "B", "C"]


def test_observers_hear_of_outcomes_in_the_order_of_the_log(broker, batch):
    heard: list[tuple[int, str]] = []

    class Ear:
        def on_event(self, envelope: Any) -> None:
            heard.append((envelope.sequence, envelope.type))

    broker.engine.services.observers = (Ear(),)
    broker.engine.start("batch", run_id="r")
    broker.work_off()
    assert heard == [(event.sequence, event.type) for event in broker.engine.history("r")]
