"""What travels, and how; and messages that come twice, late, or not at all."""

from __future__ import annotations

from datetime import timedelta
from random import Random
from typing import Any

import pytest

from flow_app import RetryPolicy, errors, step, workflow
from flow_app.core.context import StepContext
from flow_app.core.tasks import RunStep
from flow_app.dispatch import InlineDispatcher, RuntimeBuildTaskRouter
from flow_app.store import InMemoryEventStore
from tests.engine.conftest import inline_engine
from tests.engine.logbook import alone
from tests.engine.mailbox import Broker

pytestmark = pytest.mark.django_db(transaction=True)

LENIENT = RetryPolicy.none().continue_workflow_on_failure()


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

    broker.engine.start(alone(far, 41), run_id="r")
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
