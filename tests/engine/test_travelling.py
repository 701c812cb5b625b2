"""Steps that travel: what is sent, what comes of it, and when the run goes on. The broker loses, repeats and delays."""

from __future__ import annotations

import os
from collections import Counter
from datetime import timedelta
from random import Random
from typing import Any

import pytest
from django.db import transaction

from flow_app import RetryPolicy, RuntimeBuildCompatibility, errors, step, workflow
from flow_app.authoring import registry
from flow_app.core.context import StepContext
from flow_app.core.tasks import RunStep
from flow_app.dispatch import InlineDispatcher, RuntimeBuildTaskRouter
from flow_app.engine import shutdown
from flow_app.models import StepExecution
from flow_app.store import InMemoryEventStore
from tests.engine.conftest import inline_engine
from tests.engine.mailbox import Broker

pytestmark = pytest.mark.django_db(transaction=True)

LENIENT = RetryPolicy.none().continue_workflow_on_failure()


@pytest.fixture
def broker() -> Broker:
    return Broker()


@pytest.fixture
def calls() -> Counter[str]:
    return Counter()


@pytest.fixture
def batch(calls: Counter[str]) -> list[list[str]]:
    """Workflow ``batch``: three members, then their outputs. Returns what it saw completed, call by call."""
    seen: list[list[str]] = []

    @step("job")
    def job(ctx: StepContext) -> str:
        calls[ctx.step_id] += 1
        return ctx.step_id.upper()

    @workflow("batch")
    def run(ctx: Any) -> Any:
        seen.append([step_id for step_id in "abc" if ctx.step_completed(step_id)])
        if len(seen[-1]) < 3:
            return ctx.schedule_steps([ctx.step(step_id, "job") for step_id in "abc"])
        return ctx.complete([ctx.step_output(step_id) for step_id in "abc"])

    return seen


# --- what travels -----------------------------------------------------------------------------------------------------


def test_a_batch_is_sent_with_the_commit_that_starts_it_and_the_run_parks(broker, batch):
    broker.engine.start("batch", run_id="r")
    broker.drive()
    row = broker.store.row("r")
    assert [message.step_id for message in broker.box.steps] == ["a", "b", "c"]
    assert broker.types() == ["run_created", "run_started", *["step_created"] * 3, *["step_started"] * 3]
    assert (row.steps_out, row.steps_awaited, row.wake_at, row.wake_reason) == (3, "all", None, "steps")
    assert row.lease_expires_at is None
    assert batch == [[]]


def test_the_last_outcome_brings_the_run_back_once(broker, batch, calls):
    broker.engine.start("batch", run_id="r")
    broker.drive()
    assert broker.deliver("b", "a") == [True, True]
    assert broker.box.drives == []
    assert broker.store.row("r").wake_at is None
    assert broker.deliver("c") == [True]
    assert broker.box.drives == ["r"]
    assert broker.store.row("r").wake_at == broker.clock.now()
    broker.drive()
    assert broker.engine.snapshot("r").output == ["A", "B", "C"]
    assert batch == [[], ["a", "b", "c"]]
    assert calls == {"a": 1, "b": 1, "c": 1}
    assert broker.out() == []


def test_a_single_ordinary_step_runs_in_the_drive(broker, calls):
    @step("plain")
    def plain() -> int:
        return 1

    @workflow("w")
    def w(ctx: Any) -> Any:
        return ctx.complete() if ctx.step_completed("s") else ctx.schedule_steps([ctx.step("s", plain)])

    broker.engine.start(w, run_id="r")
    broker.drive()
    assert broker.engine.snapshot("r").status == "completed"
    assert broker.box.steps == []


@pytest.mark.parametrize(
    ("options", "queue"),
    [({"dispatch": "task"}, None), ({"queue": "gpu"}, "gpu"), ({"queue": "gpu", "dispatch": "task"}, "gpu")],
    ids=["dispatch", "queue", "both"],
)
def test_a_step_that_says_so_travels_alone(broker, options, queue):
    @step("far", **options)
    def far(given: int) -> int:
        return given + 1

    @workflow("w")
    def w(ctx: Any) -> Any:
        return ctx.complete(ctx.step_output("s")) if ctx.step_completed("s") else ctx.schedule_step("s", far, 41)

    broker.engine.start(w, run_id="r")
    broker.drive()
    assert broker.box.steps == [RunStep("r", "s", 1)]
    assert broker.box.queues == [queue]
    broker.work_off()
    assert broker.engine.snapshot("r").output == 42


@pytest.mark.parametrize("route", ["sends", "inline"])
def test_a_router_sends_steps_by_the_route_of_their_run(broker, batch, calls, route):
    router = RuntimeBuildTaskRouter()
    router.with_unpinned_route(broker.box if route == "sends" else InlineDispatcher(broker.engine))
    broker.engine.services.dispatcher = router
    broker.engine.start("batch", run_id="r")
    if route == "sends":
        broker.drive()
        assert [message.step_id for message in broker.box.steps] == ["a", "b", "c"]
        assert broker.out() == ["a", "b", "c"]
        broker.work_off()
    assert broker.engine.snapshot("r").output == ["A", "B", "C"]
    assert calls == {"a": 1, "b": 1, "c": 1}


def test_with_a_dispatcher_that_sends_no_steps_they_run_in_the_drive(broker, batch, calls):
    engine = inline_engine(broker.store)
    engine.start("batch", run_id="r")
    assert engine.snapshot("r").output == ["A", "B", "C"]
    assert broker.out() == []


def test_the_store_in_memory_keeps_no_steps_so_they_run_in_the_drive(batch, clock):
    broker = Broker(store=InMemoryEventStore(clock=clock), clock=clock)
    broker.engine.start("batch", run_id="r")
    broker.drive()
    assert broker.engine.snapshot("r").output == ["A", "B", "C"]
    with pytest.raises(errors.ConfigurationError, match="keeps no steps"):
        broker.engine.run_step("r", "a", 1)


def test_a_worker_reads_no_history(broker, batch, monkeypatch):
    broker.engine.start("batch", run_id="r")
    broker.drive()
    for name in ("load", "history", "events_of_type"):
        monkeypatch.setattr(broker.store, name, None)
    assert broker.deliver("a", "b", "c") == [True, True, True]


def test_the_body_sees_what_it_would_see_in_the_drive(broker, clock):
    seen: list[Any] = []

    @step("look")
    def look(ctx: StepContext) -> None:
        events = [event.type for event in ctx.history]
        seen.append((ctx.run_id, ctx.step_name, ctx.attempt, ctx.input, ctx.spec, ctx.idempotency_key, events[:2]))
        seen.append((ctx.hook_token("made"), ctx.hook_token("unmade"), ctx.cancelled))
        ctx.heartbeat()

    @workflow("w")
    def w(ctx: Any) -> Any:
        if not ctx.hook_received("made"):
            return ctx.create_hook("made")
        if not ctx.step_completed("s"):
            return ctx.schedule_steps([ctx.step("s", look, {"n": 1}), ctx.step("t", look, {"n": 1})])
        return ctx.complete()

    in_the_drive = inline_engine(InMemoryEventStore(clock=clock))
    for engine, work in ((broker.engine, broker.work_off), (in_the_drive, lambda: None)):
        engine.start(w, run_id="r", version="7")
        work()
        engine.resume_hook("r", "made")
        work()
        assert engine.snapshot("r").status == "completed"
    assert broker.types().count("step_completed") == 2
    assert len(seen) == 8
    assert sorted(map(repr, seen[:4])) == sorted(map(repr, seen[4:]))


# --- messages that come twice, late, or not at all --------------------------------------------------------------------


def test_a_message_that_comes_again_does_nothing(broker, batch, calls):
    broker.engine.start("batch", run_id="r")
    broker.drive()
    message = broker.take("a")
    assert [broker.run(message) for _ in range(6)] == [True] + [False] * 5
    broker.work_off(copies=6)
    assert broker.engine.snapshot("r").output == ["A", "B", "C"]
    assert calls == {"a": 1, "b": 1, "c": 1}
    assert [broker.run(RunStep("r", step_id, 1)) for step_id in "abc"] == [False] * 3
    assert broker.run(RunStep("unknown", "a", 1)) is False


def test_a_message_that_comes_while_the_first_still_runs_does_nothing(broker):
    inner: list[bool] = []

    @step("slow", dispatch="task")
    def slow(ctx: StepContext) -> None:
        inner.extend(broker.run(RunStep("r", "s", 1)) for _ in range(5))

    @workflow("w")
    def w(ctx: Any) -> Any:
        return ctx.complete() if ctx.step_completed("s") else ctx.schedule_step("s", slow)

    broker.engine.start(w, run_id="r")
    broker.work_off()
    assert inner == [False] * 5
    assert broker.types().count("step_completed") == 1


def test_messages_that_were_lost_are_sent_again(broker, batch, calls):
    broker.engine.start("batch", run_id="r")
    broker.drive()
    broker.deliver("b")
    broker.box.steps.clear()
    broker.pass_time(29)
    assert broker.box.steps == []
    broker.pass_time(2)
    assert sorted(message.step_id for message in broker.box.steps) == ["a", "c"]
    broker.box.steps.clear()
    broker.pass_time(31)
    assert len(broker.box.steps) == 2
    broker.box.steps.clear()
    broker.pass_time(31)  # each time later, so that a backlog does not feed itself
    assert broker.box.steps == []
    broker.pass_time(31)
    assert len(broker.box.steps) == 2
    broker.work_off()
    assert broker.engine.snapshot("r").output == ["A", "B", "C"]
    assert calls == {"a": 1, "b": 1, "c": 1}


def test_the_hint_of_a_join_that_was_lost_is_sent_again(broker, batch):
    broker.engine.start("batch", run_id="r")
    broker.drive()
    broker.deliver("a", "b", "c")
    broker.box.drives.clear()
    broker.tick()
    assert broker.box.drives == ["r"]


@pytest.mark.parametrize("seed", range(40))
def test_in_any_order_and_however_often_the_end_is_the_same(broker, seed, calls):
    """Batches, retries of both kinds, failures that are handled, a hook: as in one process, call by call."""
    random = Random(seed)

    @step("job", retry=RetryPolicy.fixed(3))
    def job(ctx: StepContext) -> str:
        calls[f"{ctx.step_id}/{ctx.attempt}"] += 1
        if ctx.attempt < ctx.input:
            raise ValueError("not yet")
        return f"{ctx.step_id}{ctx.attempt}"

    @step("later", retry=RetryPolicy.fixed(2, timedelta(seconds=20)))
    def later(ctx: StepContext) -> str:
        calls[f"{ctx.step_id}/{ctx.attempt}"] += 1
        if ctx.attempt == 1:
            raise ValueError("later")
        return "late"

    @step("bad", retry=LENIENT)
    def bad(ctx: StepContext) -> None:
        calls[f"{ctx.step_id}/{ctx.attempt}"] += 1
        raise ValueError("never")

    @workflow("w")
    def w(ctx: Any) -> Any:
        first = [ctx.step(f"a{n}", job, n) for n in range(1, 4)]
        if not all(ctx.step_completed(f"a{n}") for n in range(1, 4)):
            return ctx.schedule_steps(first)
        if not (ctx.step_completed("l") and ctx.step_failed("x")):
            return ctx.schedule_steps([ctx.step("l", later), ctx.step("x", bad), ctx.step("p", job, 1)])
        if not ctx.hook_received("h"):
            return ctx.create_hook("h")
        if not ctx.step_completed("last"):
            return ctx.schedule_step("last", job, 2)
        return ctx.complete([ctx.step_output(name) for name in ("a1", "a2", "a3", "l", "p", "last")])

    broker.engine.start(w, run_id="r")
    for _ in range(12):
        broker.work_off(random=random, copies=random.randint(1, 3))
        if broker.engine.list_active_hooks():
            broker.engine.resume_hook("r", "h", 1)
        broker.pass_time(random.randint(1, 40))
        broker.box.steps[:] = [message for message in broker.box.steps if random.random() > 0.3]
        if broker.store.row("r").status.is_terminal:
            break
    assert broker.engine.snapshot("r").output == ["a11", "a22", "a33", "late", "p1", "last2"]
    assert set(calls.values()) == {1}
    assert broker.out() == []
    assert broker.store.row("r").steps_out == 0


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


# --- dead workers -----------------------------------------------------------------------------------------------------


class Died(BaseException):
    """The end of a worker's process."""


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

    @workflow("w")
    def w(ctx: Any) -> Any:
        return ctx.complete(ctx.step_output("s")) if ctx.step_completed("s") else ctx.schedule_step("s", frozen)

    broker.engine.start(w, run_id="r")
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


# --- ending, stopping, sleeping ---------------------------------------------------------------------------------------


def test_a_run_that_ends_recalls_its_steps(broker, batch, calls):
    broker.engine.start("batch", run_id="r")
    broker.drive()
    assert broker.engine.force_cancel("r")
    row = broker.store.row("r")
    assert (row.steps_out, row.steps_awaited, broker.out()) == (0, "", [])
    assert broker.deliver("a", "b", "c") == [False] * 3
    assert calls == {}


def test_a_run_that_ends_while_a_body_runs_drops_its_outcome_and_tells_it(broker):
    told: list[Any] = []

    @step("slow", dispatch="task")
    def slow(ctx: StepContext) -> None:
        broker.engine.force_cancel("r")
        broker.clock.advance(timedelta(seconds=10))
        try:
            ctx.heartbeat()
        except errors.AttemptEndedError as error:
            told.append((error.step_id, ctx.cancelled))
            raise

    @workflow("w")
    def w(ctx: Any) -> Any:
        return ctx.schedule_step("s", slow)

    broker.engine.start(w, run_id="r")
    broker.drive()
    with pytest.raises(errors.LeaseLostError):
        broker.deliver("s")
    assert told == [("s", True)]
    assert broker.types()[-1] == "run_cancelled"


def test_a_driver_that_ends_the_run_recalls_its_steps(broker, batch):
    @workflow("w")
    def w(ctx: Any) -> Any:
        if not ctx.hook_created("stop"):
            return ctx.create_hook("stop")
        if ctx.hook_received("stop"):
            return ctx.complete("stopped")
        return ctx.schedule_steps([ctx.step(step_id, "job") for step_id in "abc"])

    broker.engine.start(w, run_id="r")
    broker.drive()
    assert broker.out() == ["a", "b", "c"]
    broker.engine.resume_hook("r", "stop")
    broker.drive()
    assert broker.engine.snapshot("r").output == "stopped"
    assert broker.out() == []


def cleaning(broker: Broker, calls: Counter[str]) -> list[Any]:
    seen: list[Any] = []

    @step("charge", dispatch="task")
    def charge(ctx: StepContext) -> str:
        calls[ctx.step_id] += 1
        if ctx.input == "cancel":
            broker.engine.request_cancellation("r", "enough")
            broker.work_off()
            seen.append("still running")
        return f"receipt {ctx.step_id}"

    @step("refund")
    def refund(receipt: str) -> str:
        return f"refunded {receipt}"

    @workflow("w")
    def w(ctx: Any) -> Any:
        if ctx.cancellation_request is not None:
            seen.append([ctx.step_output("a"), ctx.step_output("b"), ctx.step_failed("a")])
            if ctx.step_output("a") and not ctx.step_completed("clean"):
                return ctx.schedule_step("clean", refund, ctx.step_output("a"))
            return ctx.cancel()
        return ctx.schedule_steps([ctx.step("a", charge, "cancel"), ctx.step("b", charge, "")])

    return seen


def test_clean_up_waits_for_the_body_that_ran_and_sees_its_receipt(broker, calls):
    seen = cleaning(broker, calls)
    broker.engine.start("w", run_id="r")
    broker.drive()
    message_of_b = broker.take("b")
    assert broker.deliver("a") == [True]
    assert seen == ["still running"]
    assert broker.run(message_of_b) is False
    broker.work_off()
    assert seen[1:] == [["receipt a", None, None]] * 2
    snapshot = broker.engine.snapshot("r")
    assert snapshot.status == "cancelled"
    assert snapshot.steps["clean"].output == "refunded receipt a"
    assert snapshot.steps["b"].status == "cancelled"
    assert calls == {"a": 1}


def test_a_run_that_is_stopped_before_any_body_began_cleans_up_at_once(broker, calls):
    seen = cleaning(broker, calls)
    broker.engine.start("w", run_id="r")
    broker.drive()
    broker.engine.request_cancellation("r")
    assert (broker.out(), broker.store.row("r").steps_out) == ([], 0)
    broker.drive()
    assert seen == [[None, None, None]]
    assert broker.engine.snapshot("r").status == "cancelled"
    assert broker.deliver("a", "b") == [False, False]


def test_a_body_that_dies_after_the_run_was_stopped_is_lost_and_does_not_run_again(broker, calls):
    seen: list[Any] = []

    @step("mortal", dispatch="task")
    def body(ctx: StepContext) -> None:
        calls["body"] += 1
        broker.engine.request_cancellation("r")
        raise Died

    @workflow("w")
    def w(ctx: Any) -> Any:
        if ctx.cancellation_request is not None:
            seen.append(ctx.step_failed("s"))
            return ctx.cancel()
        return ctx.schedule_step("s", body)

    broker.engine.start(w, run_id="r")
    broker.drive()
    with pytest.raises(Died):
        broker.deliver("s")
    broker.work_off()
    assert seen == []
    broker.pass_time(31)
    broker.work_off()
    assert seen == ["worker lost"]
    assert broker.engine.snapshot("r").status == "cancelled"
    assert calls == {"body": 1}


def test_a_paused_run_sends_nothing_starts_nothing_and_keeps_what_comes(broker, calls):
    @step("flaky", retry=RetryPolicy.fixed(3))
    def flaky(ctx: StepContext) -> int:
        calls[ctx.step_id] += 1
        if ctx.step_id == "a" and ctx.attempt == 1:
            broker.engine.pause("r")
            raise ValueError
        return ctx.attempt

    @workflow("w")
    def w(ctx: Any) -> Any:
        if ctx.step_completed("a") and ctx.step_completed("b"):
            return ctx.complete([ctx.step_output("a"), ctx.step_output("b")])
        return ctx.schedule_steps([ctx.step("a", flaky), ctx.step("b", flaky)])

    broker.engine.start(w, run_id="r")
    broker.drive()
    assert broker.deliver("a", "b") == [True, False]
    assert broker.box.steps == []
    assert broker.types()[-1] == "step_retrying"
    for _ in range(3):
        broker.pass_time(700)
    assert (broker.box.drives, broker.box.steps) == ([], [])
    assert broker.store.row("r").wake_at is None
    broker.engine.unpause("r")
    broker.tick()
    broker.work_off()
    assert broker.engine.snapshot("r").output == [2, 1]
    assert calls == {"a": 2, "b": 1}


def test_an_outcome_that_comes_while_the_run_is_paused_is_kept_and_wakes_nobody(broker, batch):
    broker.engine.start("batch", run_id="r")
    broker.drive()
    broker.deliver("a", "b")

    broker.engine.pause("r")
    StepExecution.objects.update(deliveries=1)
    assert broker.deliver("c") == [False]
    broker.engine.unpause("r")
    broker.work_off()
    broker.tick()
    broker.work_off()
    assert broker.engine.snapshot("r").output == ["A", "B", "C"]


# --- the driver -------------------------------------------------------------------------------------------------------


def test_a_driver_that_comes_by_leaves_steps_out_where_they_are(broker, batch, calls):
    broker.engine.start("batch", run_id="r")
    broker.drive()
    for _ in range(3):
        broker.engine.drive("r")
    assert len(broker.box.steps) == 3
    assert broker.store.row("r").steps_awaited == "all"
    broker.work_off()
    assert calls == {"a": 1, "b": 1, "c": 1}


def test_a_driver_that_sends_no_steps_leaves_those_that_are_out(broker, batch, calls):
    """After a change of the dispatcher, the scheduler has the steps run where it runs."""
    broker.engine.start("batch", run_id="r")
    broker.drive()
    broker.deliver("a")
    inline = inline_engine(broker.store)
    inline.drive("r")
    assert calls == {"a": 1}
    for step_id in "bc":
        inline.services.dispatcher.dispatch(RunStep("r", step_id, 1))
    assert inline.snapshot("r").output == ["A", "B", "C"]
    assert calls == {"a": 1, "b": 1, "c": 1}


def test_steps_that_ran_in_a_drive_that_died_travel_from_then_on(broker, batch, calls):
    dead = inline_engine(broker.store)

    @step("killer", retry=RetryPolicy.none())
    def killer(ctx: StepContext) -> int:
        calls[ctx.step_id] += 1
        if sum(calls.values()) == 1:
            raise Died
        return 1

    @workflow("w")
    def w(ctx: Any) -> Any:
        if ctx.step_completed("a") and ctx.step_completed("b"):
            return ctx.complete()
        return ctx.schedule_steps([ctx.step("a", killer), ctx.step("b", killer)])

    with pytest.raises((Died, errors.RuntimeFailureError)):
        dead.start(w, run_id="r")
    started = broker.types().count("step_started")
    broker.pass_time(31)
    broker.drive()
    assert broker.box.steps
    broker.work_off()
    assert broker.engine.snapshot("r").status == "completed"
    assert broker.types().count("step_started") == started == 2


def test_a_workflow_that_fails_is_blocked_and_outcomes_bring_it_back_at_once(broker, batch):
    broken = [True]

    @workflow("w")
    def w(ctx: Any) -> Any:
        if not ctx.step_scheduled("a"):
            return ctx.schedule_steps([ctx.step(step_id, "job") for step_id in "abc"])
        if broken[0] and ctx.step_completed("a"):
            raise ValueError("a bug")
        if all(ctx.step_completed(step_id) for step_id in "abc"):
            return ctx.complete()
        return ctx.schedule_steps([ctx.step(step_id, "job") for step_id in "abc"])

    broker.engine.start(w, run_id="r")
    broker.drive()
    broker.deliver("a")
    with pytest.raises(errors.RuntimeFailureError):
        broker.engine.drive("r")
    assert broker.store.row("r").steps_awaited == "any"
    broken[0] = False
    broker.deliver("b")
    assert broker.box.drives == ["r"]
    broker.work_off()
    assert broker.engine.snapshot("r").status == "completed"
    assert broker.store.row("r").blocked_code == ""


def test_a_step_does_not_run_in_a_transaction_of_its_caller(broker, batch):
    broker.engine.start("batch", run_id="r")
    broker.drive()
    with transaction.atomic(), pytest.raises(errors.InvalidTransitionError, match="inside a transaction"):
        broker.engine.run_step("r", "a", 1)


# --- shutting down ----------------------------------------------------------------------------------------------------


@pytest.fixture
def shutting_down():
    yield shutdown.request
    shutdown.withdraw()


def test_a_worker_that_shuts_down_stops_at_its_next_turn_and_claims_nothing_more(broker, batch, shutting_down):
    ran: list[int] = []

    @step("short")
    def short(n: int) -> None:
        ran.append(n)
        if n == 2:
            shutting_down()

    @workflow("w")
    def w(ctx: Any) -> Any:
        for n in range(5):
            if not ctx.step_completed(f"s{n}"):
                return ctx.schedule_step(f"s{n}", short, n)
        return ctx.complete()

    broker.engine.start(w, run_id="r")
    broker.drive()
    row = broker.store.row("r")
    assert ran == [0, 1, 2]
    assert broker.types()[-1] == "step_completed"
    assert (row.lease_expires_at, row.wake_reason) == (None, "dispatched")
    assert broker.box.drives == ["r"]
    broker.engine.start("batch", run_id="other")
    broker.engine.resume_scheduled_run("other")
    broker.drive()
    assert ran == [0, 1, 2]
    assert broker.store.row("other").lease_epoch == 0
    shutdown.withdraw()
    broker.engine.resume_scheduled_run("r")
    assert broker.engine.snapshot("r").status == "completed"


def test_a_worker_that_shuts_down_takes_no_step(broker, batch, calls, shutting_down):
    broker.engine.start("batch", run_id="r")
    broker.drive()
    shutting_down()
    assert broker.deliver("a") == [False]
    assert calls == {}
    assert StepExecution.objects.get(step_id="a").deliveries == 0


def test_forked_children_know_that_their_parent_was_told_to_shut_down(shutting_down):
    read, write = os.pipe()
    child = os.fork()
    if not child:  # a child that waits for its parent, looks, and ends without any clean-up of pytest's
        os.close(write)
        os.read(read, 1)
        os._exit(0 if shutdown.requested() else 1)
    os.close(read)
    shutting_down()
    os.write(write, b".")
    os.close(write)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
