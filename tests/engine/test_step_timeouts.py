"""The time of an attempt is a fence: the attempt ends, what its body returns later is refused, and the body is told."""

from __future__ import annotations

import threading
from collections import Counter
from datetime import timedelta
from typing import Any

import pytest
from django.db import transaction

from flow_app import RetryPolicy, errors, step, workflow
from flow_app.core.context import StepContext
from flow_app.core.tasks import RunStep
from flow_app.models import StepExecution
from flow_app.store import DjangoEventStore
from flow_app.testing import FakeClock, FlowTestEngine
from tests.engine.conftest import inline_engine
from tests.engine.logbook import alone
from tests.engine.mailbox import Broker

pytestmark = pytest.mark.django_db(transaction=True)

MINUTE = timedelta(minutes=1)
SOON = timedelta(milliseconds=50)
LENIENT = RetryPolicy.none().continue_workflow_on_failure()


@pytest.fixture
def broker() -> Broker:
    return Broker()


def slow(body: Any, *, retry: RetryPolicy = LENIENT, timeout: timedelta = MINUTE, **options: Any) -> None:
    """Register step ``slow`` and a workflow that ends with its output, or its error."""
    step("slow", retry=retry, timeout=timeout, **options)(body)

    @workflow("w")
    def w(ctx: Any) -> Any:
        if ctx.step_completed("s"):
            return ctx.complete(ctx.step_output("s"))
        error = ctx.step_failed("s")
        return ctx.complete({"error": error}) if error else ctx.schedule_step("s", "slow")


class Hanging:
    """A body that hangs until the test lets it go, and says then what its heartbeat told it."""

    def __init__(self) -> None:
        self.go = threading.Event()
        self.ended = threading.Event()
        self.told: list[str] = []
        self.threads: list[str] = []

    def __call__(self, ctx: StepContext) -> str:
        self.threads.append(threading.current_thread().name)
        ctx.heartbeat()
        assert self.go.wait(30)
        try:
            ctx.heartbeat()
        except errors.AttemptEndedError as error:
            self.told.append(error.code)
            raise
        finally:
            self.ended.set()
        return "too late"


# --- in the drive -----------------------------------------------------------------------------------------------------


def test_a_drive_goes_on_when_the_time_of_a_body_is_over():
    engine, hanging = inline_engine(DjangoEventStore()), Hanging()

    def body(ctx: StepContext) -> str:
        return hanging(ctx)

    slow(body, timeout=SOON)
    engine.start("w", run_id="r")
    assert engine.snapshot("r").output == {"error": "timed out"}
    hanging.go.set()
    assert hanging.ended.wait(30)
    assert hanging.told == ["attempt_ended"]
    assert engine.snapshot("r").steps["s"].status == "failed"


def test_each_attempt_has_the_whole_time(broker):
    ran: list[int] = []

    def body(ctx: StepContext) -> str:
        ran.append(ctx.attempt)
        broker.clock.advance(MINUTE if ctx.attempt == 1 else MINUTE / 2)
        return "in time"

    slow(body, retry=RetryPolicy.fixed(2))
    engine = inline_engine(broker.store)
    engine.start("w", run_id="r")
    assert engine.snapshot("r").output == "in time"
    assert ran == [1, 2]
    assert [event.event.error for event in engine.history("r") if event.type == "step_retrying"] == ["timed out"]


def test_in_a_batch_of_one_process_the_others_settle(broker):
    def body(ctx: StepContext) -> str:
        broker.clock.advance(MINUTE)
        return "late"

    slow(body)

    @step("quick")
    def quick() -> str:
        return "quick"

    @workflow("batch")
    def batch(ctx: Any) -> Any:
        if ctx.step_failed("s") and ctx.step_completed("q"):
            return ctx.complete([ctx.step_failed("s"), ctx.step_output("q")])
        return ctx.schedule_steps([ctx.step("s", "slow"), ctx.step("q", quick)])

    engine = inline_engine(broker.store)
    engine.start(batch, run_id="r")
    assert engine.snapshot("r").output == ["timed out", "quick"]


def test_a_step_without_a_timeout_needs_no_thread():
    threads: list[str] = []

    @step("plain")
    def plain() -> None:
        threads.append(threading.current_thread().name)

    @workflow("w")
    def w(ctx: Any) -> Any:
        return ctx.complete() if ctx.step_completed("s") else ctx.schedule_step("s", plain)

    inline_engine(DjangoEventStore()).start(w)
    assert threads == [threading.current_thread().name]


def test_where_no_thread_may_run_the_body_is_judged_at_its_end():
    flow, threads = FlowTestEngine(), []

    def body(ctx: StepContext) -> str:
        threads.append(threading.current_thread().name)
        flow.clock.advance(MINUTE)
        return "late"

    slow(body)
    with transaction.atomic():
        run_id = flow.start("w")
    flow.advance()
    assert flow.snapshot(run_id).output == {"error": "timed out"}
    assert len(threads) == 1


@pytest.mark.parametrize("death", [SystemExit, KeyboardInterrupt], ids=lambda death: death.__name__)
@pytest.mark.parametrize("members", [1, 2])
@pytest.mark.parametrize("timeout", [None, MINUTE], ids=["untimed", "timed"])
def test_a_body_that_stops_its_process_is_counted_whatever_thread_it_runs_in(death, members, timeout):
    """Else it would run for ever: a run that is merely blocked is tried again and again."""
    engine, ran = inline_engine(DjangoEventStore(clock=FakeClock())), Counter()

    @step("mortal", retry=LENIENT, timeout=timeout)
    def mortal(ctx: StepContext) -> str:
        if ctx.step_id == "s0":
            ran["body"] += 1
            raise death
        return "done"

    @workflow("w")
    def w(ctx: Any) -> Any:
        if ctx.step_failed("s0"):
            return ctx.complete(ctx.step_failed("s0"))
        return ctx.schedule_steps([ctx.step(f"s{n}", mortal) for n in range(members)])

    raised = death if members == 1 and timeout is None else (death, errors.RuntimeFailureError)
    with pytest.raises(raised):
        engine.start(w, run_id="r")
    for _ in range(engine.services.options.max_deliveries - 1):
        with pytest.raises(raised):
            engine.drive("r")
    engine.drive("r")
    assert engine.snapshot("r").output == "worker lost"
    assert ran["body"] == engine.services.options.max_deliveries


# --- on its own -------------------------------------------------------------------------------------------------------


def test_a_worker_ends_the_attempt_when_the_time_is_over_and_is_free_again():
    broker, hanging = Broker(store=DjangoEventStore()), Hanging()

    def body(ctx: StepContext) -> str:
        return hanging(ctx)

    slow(body, timeout=timedelta(milliseconds=300), dispatch="task")
    broker.engine.start("w", run_id="r")
    broker.drive()
    assert broker.deliver("s") == [True]
    broker.work_off()
    assert broker.engine.snapshot("r").output == {"error": "timed out"}
    hanging.go.set()
    assert hanging.ended.wait(30)
    assert hanging.told == ["attempt_ended"]
    assert broker.types()[-2:] == ["step_failed", "run_completed"]


def test_a_timeout_is_a_failed_attempt_under_the_policy_of_the_step(broker):
    def body(ctx: StepContext) -> int:
        if ctx.attempt < 3:
            broker.clock.advance(MINUTE)
        return ctx.attempt

    slow(body, retry=RetryPolicy.fixed(3), dispatch="task")
    broker.engine.start("w", run_id="r")
    broker.work_off()
    assert broker.engine.snapshot("r").output == 3
    assert broker.types().count("step_retrying") == 2


def test_when_the_worker_is_dead_another_ends_the_attempt_without_its_body(broker):
    ran: list[int] = []

    class Died(BaseException):
        pass

    def body(ctx: StepContext) -> None:
        ran.append(1)
        raise Died

    slow(body, timeout=timedelta(seconds=10), dispatch="task")
    broker.engine.start("w", run_id="r")
    broker.drive()
    with pytest.raises((Died, errors.RuntimeFailureError)):
        broker.deliver("s")
    assert StepExecution.objects.get().wake_at == broker.clock.now() + timedelta(seconds=10)
    broker.pass_time(9)
    assert broker.box.steps == []
    broker.pass_time(1)
    assert broker.deliver("s") == [True]
    broker.work_off()
    assert broker.engine.snapshot("r").output == {"error": "timed out"}
    assert ran == [1]


def test_a_result_that_comes_after_another_worker_ended_the_attempt_is_refused(broker):
    def body(ctx: StepContext) -> str:
        if ctx.attempt == 1:
            broker.pass_time(61)
            assert broker.run(broker.take("s")) is True  # it ends attempt 1, and sends attempt 2
            assert broker.take("s") == RunStep("r", "s", 2)
            broker.box.steps.append(RunStep("r", "s", 2))
            with pytest.raises(errors.AttemptEndedError):
                ctx.heartbeat()
        return f"attempt {ctx.attempt}"

    slow(body, retry=RetryPolicy.fixed(2), dispatch="task")
    broker.engine.start("w", run_id="r")
    broker.drive()
    with pytest.raises(errors.LeaseLostError):
        broker.deliver("s")
    broker.work_off()
    assert broker.engine.snapshot("r").output == "attempt 2"


def test_the_time_of_an_attempt_that_is_over_does_not_begin_again(broker, monkeypatch):
    """Who takes it then may die as well, before he has said so."""
    slow(lambda ctx: broker.clock.advance(MINUTE * 2) and "late", dispatch="task")
    broker.engine.start("w", run_id="r")
    broker.drive()
    with monkeypatch.context() as patch:
        patch.setattr(
            "flow_app.engine.remote.settle", lambda *args, **how: None
        )  # two workers that die before the commit
        broker.deliver("s")
        over = StepExecution.objects.get().times_out_at
        broker.pass_time(1)
        broker.deliver("s")
        assert StepExecution.objects.get().times_out_at == over
    broker.pass_time(31)
    broker.work_off()
    assert broker.engine.snapshot("r").output == {"error": "timed out"}


# --- heartbeats -------------------------------------------------------------------------------------------------------


def test_heartbeats_keep_the_lease(broker):
    resent: list[Any] = []

    @step("long", dispatch="task")
    def long(ctx: StepContext) -> str:
        for _ in range(5):
            broker.pass_time(20)
            ctx.heartbeat()
            resent.extend(broker.box.steps)
        return "kept"

    broker.engine.start(alone(long), run_id="r")
    broker.work_off()
    assert broker.engine.snapshot("r").output == "kept"
    assert resent == []


def test_heartbeats_do_not_move_the_end_of_the_attempt(broker):
    def body(ctx: StepContext) -> str:
        for _ in range(5):
            ctx.heartbeat()
            broker.clock.advance(timedelta(seconds=20))
        return "never"

    slow(body, dispatch="task")
    broker.engine.start("w", run_id="r")
    broker.work_off()
    assert broker.engine.snapshot("r").output == {"error": "timed out"}


def test_a_heartbeat_is_seldom_a_statement_and_never_one_in_a_transaction_of_the_body(
    broker, django_assert_num_queries
):
    @step("busy", dispatch="task")
    def busy(ctx: StepContext) -> None:
        with django_assert_num_queries(0):
            for _ in range(1000):
                ctx.heartbeat()
        with transaction.atomic():
            broker.clock.advance(timedelta(seconds=10))
            with django_assert_num_queries(0):
                ctx.heartbeat()
        with django_assert_num_queries(1):
            for _ in range(1000):
                ctx.heartbeat()

    @workflow("w")
    def w(ctx: Any) -> Any:
        return ctx.complete() if ctx.step_completed("s") else ctx.schedule_step("s", busy, retry=RetryPolicy.none())

    broker.engine.start(w, run_id="r")
    broker.work_off()
    assert broker.engine.snapshot("r").status == "completed"


def test_a_heartbeat_survives_a_database_that_is_away_for_a_moment(broker, monkeypatch):
    @step("long", dispatch="task")
    def long(ctx: StepContext) -> str:
        with monkeypatch.context() as patch:
            patch.setattr(broker.store, "renew_step", None)
            broker.clock.advance(timedelta(seconds=10))
            ctx.heartbeat()
        return "done"

    broker.engine.start(alone(long), run_id="r")
    broker.work_off()
    assert broker.engine.snapshot("r").output == "done"


def test_in_the_drive_a_heartbeat_tells_that_the_run_has_ended(broker):
    told: list[str] = []

    @step("long")
    def long(ctx: StepContext) -> None:
        ctx.heartbeat()
        told.append("alive")

    @step("ends", retry=RetryPolicy.none())
    def ends() -> None:
        raise ValueError

    @workflow("w")
    def w(ctx: Any) -> Any:
        return ctx.schedule_step("s", long) if not ctx.step_completed("s") else ctx.schedule_step("e", ends)

    inline_engine(broker.store).start(w, run_id="r")
    assert told == ["alive"]
