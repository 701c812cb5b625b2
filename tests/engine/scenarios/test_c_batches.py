"""Scenarios 25 to 35: steps side by side."""

from __future__ import annotations

import threading
from datetime import timedelta

import pytest

from flow_app import RetryPolicy, step, workflow
from flow_app.errors import InvalidTransitionError, LeaseLostError, NonDeterministicError, RuntimeFailureError
from flow_app.signals import event_recorded
from tests.engine.scenarios.support import PATIENCE, Crowd, names, numbered, redefine, restarted, told

on_a_database = pytest.mark.parametrize(
    "store", [pytest.param("django", marks=pytest.mark.django_db(transaction=True))], indirect=True
)


def batch(*members, then=None):
    """A workflow of one batch; ``members`` are (step id, step, input, policy)."""

    @workflow("w")
    def w(ctx):
        ids = [member[0] for member in members]
        if all(ctx.step_completed(step_id) or ctx.step_failed(step_id) is not None for step_id in ids):
            return then(ctx) if then else ctx.complete({step_id: ctx.step_output(step_id) for step_id in ids})
        return ctx.schedule_steps(
            [ctx.step(step_id, step, value, retry=policy) for step_id, step, value, policy in members]
        )

    return w


def test_scenario_024_the_order_of_a_batchs_events(engine):
    @step("s")
    def s(value):
        return value

    run_id = engine.start(batch(("a", s, 1, None), ("b", s, 2, None)))
    history = told(engine, run_id)
    assert history[:6] == ["C", "S", "sc:a", "sc:b", "ss:a", "ss:b"]
    assert sorted(history[6:8]) == ["sk:a", "sk:b"]
    assert history[8:] == ["RC"]
    assert engine.snapshot(run_id).output == {"a": 1, "b": 2}


@on_a_database
def test_scenario_025_members_are_in_flight_together(engine):
    barrier = threading.Barrier(2, timeout=PATIENCE)

    @step("meet")
    def meet(value):
        barrier.wait()
        return value

    run_id = engine.start(batch(("a", meet, 1, None), ("b", meet, 2, None)))
    assert engine.snapshot(run_id).output == {"a": 1, "b": 2}
    assert names(engine, run_id) == "C S sc sc ss ss sk sk RC"


@on_a_database
def test_scenario_026_a_fast_member_is_durable_while_a_slow_one_hangs(engine, clock):
    """The worker is lost with the slow member; another one delivers just that attempt again."""
    calls = []
    fast_is_durable, let_go = threading.Event(), threading.Event()

    @step("fast")
    def fast():
        calls.append("fast")
        return "fast"

    @step("slow")
    def slow():
        calls.append("slow")
        if calls.count("slow") == 1:
            let_go.wait(PATIENCE)
            return "too late"
        return "slow"

    def seen(sender, envelope, **kwargs):
        if envelope.type == "step_completed":
            fast_is_durable.set()

    event_recorded.connect(seen)
    try:
        w = batch(("slow", slow, None, None), ("fast", fast, None, None))
        lost = Crowd(lambda: engine.start(w, run_id="r"))
        assert fast_is_durable.wait(PATIENCE)
        assert told(engine, "r") == ["C", "S", "sc:slow", "sc:fast", "ss:slow", "ss:fast", "sk:fast"]
        run = engine.snapshot("r")
        assert (run.steps["fast"].status, run.steps["slow"].status) == ("completed", "running")

        assert restarted(engine).drive("r").status == "running"  # the lease is held
        clock.advance(engine.services.options.lease)
        run = restarted(engine).drive("r")
    finally:
        let_go.set()
        event_recorded.disconnect(seen)
    assert run.output == {"slow": "slow", "fast": "fast"}
    assert numbered(engine, "r") == "C S sc sc ss1 ss1 sk sk RC"
    assert sorted(calls) == ["fast", "slow", "slow"]
    assert isinstance(lost.join()[0], LeaseLostError)
    assert engine.snapshot("r").output == {"slow": "slow", "fast": "fast"}


@pytest.fixture
def twice():
    """A step that fails in its first attempt."""
    calls = []

    @step("twice")
    def twice(ctx):
        calls.append((ctx.step_id, ctx.attempt))
        if ctx.attempt == 1:
            raise ValueError("once")
        return ctx.attempt

    twice.calls = calls
    return twice


def test_scenario_028_both_are_retried_after_the_same_delay(engine, twice, clock):
    delay = timedelta(milliseconds=10)
    policy = RetryPolicy.fixed(2, delay)
    run_id = engine.start(batch(("a", twice, None, policy), ("b", twice, None, policy)))

    run = engine.snapshot(run_id)
    assert run.status == "suspended"
    assert [item.status for item in run.steps.values()] == ["pending", "pending"]
    assert engine.resume_due_retries(clock.now() + delay) == [(run_id, "a"), (run_id, "b")]
    run = engine.snapshot(run_id)
    assert run.output == {"a": 2, "b": 2}
    assert names(engine, run_id) == "C S sc sc ss ss sr sr ss ss sk sk RC"


def test_scenario_029_retries_due_at_different_times(engine, twice, clock):
    start = clock.now()
    soon, late = timedelta(milliseconds=10), timedelta(minutes=1)
    run_id = engine.start(
        batch(("alpha", twice, None, RetryPolicy.fixed(2, soon)), ("beta", twice, None, RetryPolicy.fixed(2, late)))
    )

    assert engine.resume_due_retries(start + soon) == [(run_id, "alpha")]
    run = engine.snapshot(run_id)
    assert run.status == "suspended"
    assert (run.steps["alpha"].status, run.steps["alpha"].attempt) == ("completed", 2)
    assert (run.steps["beta"].status, run.steps["beta"].attempt) == ("pending", 1)
    assert engine.store.row(run_id).wake_at == start + late

    clock.advance(late)
    assert [item.subject_id for item in engine.resume_scheduled_run(run_id)] == ["beta"]
    assert engine.snapshot(run_id).output == {"alpha": 2, "beta": 2}


def test_retries_without_delay_are_a_round_of_their_own(engine, twice):
    @step("fine")
    def fine():
        return 1

    run_id = engine.start(batch(("a", twice, None, None), ("b", fine, None, None), ("c", twice, None, None)))
    history = told(engine, run_id)
    assert history[:8] == ["C", "S", "sc:a", "sc:b", "sc:c", "ss:a", "ss:b", "ss:c"]
    assert sorted(history[8:11]) == ["sk:b", "sr:a", "sr:c"]
    settled = [item.removeprefix("sr:") for item in history[8:11] if item.startswith("sr")]
    assert history[11:13] == [f"ss:{step_id}" for step_id in settled]  # in the order they settled
    assert sorted(history[13:15]) == ["sk:a", "sk:c"]
    assert engine.snapshot(run_id).output == {"a": 2, "b": 1, "c": 2}


def test_retries_without_delay_start_in_the_order_their_steps_settled(engine):
    c_has_failed = threading.Event()

    @step("s")
    def s(ctx):
        if ctx.attempt == 1:
            assert ctx.step_id == "c" or c_has_failed.wait(PATIENCE)
            raise ValueError("once")
        return 1

    def seen(sender, envelope, **kwargs):
        if envelope.type == "step_retrying":
            c_has_failed.set()

    event_recorded.connect(seen)
    try:
        run_id = engine.start(batch(("a", s, None, None), ("c", s, None, None)))
    finally:
        event_recorded.disconnect(seen)
    assert told(engine, run_id)[6:10] == ["sr:c", "sr:a", "ss:c", "ss:a"]


def test_scenario_031_a_member_that_exhausts_ends_the_run(engine):
    """Nobody waits for the sibling: it closes as cancelled, and what it returns later is dropped."""
    let_go, sibling_done = threading.Event(), threading.Event()
    told_of_it = []

    @step("hangs")
    def hangs(ctx):
        let_go.wait(PATIENCE)
        told_of_it.append(ctx.cancelled)
        sibling_done.set()
        return 1

    @step("fails", retry=RetryPolicy.none())
    def fails():
        raise ValueError("no")

    if not engine.store.threads_see_writes():
        pytest.skip("members run one after another here")
    try:
        run_id = engine.start(batch(("hangs", hangs, None, None), ("fails", fails, None, None)))
        assert told(engine, run_id) == [
            "C",
            "S",
            "sc:hangs",
            "sc:fails",
            "ss:hangs",
            "ss:fails",
            "sf:fails",
            "RE:fails",
        ]
        run = engine.snapshot(run_id)
        assert run.status == "failed"
        assert run.terminal_outcome.type == "retry_exhausted"
        assert run.steps["hangs"].status == "cancelled"
    finally:
        let_go.set()
    assert sibling_done.wait(PATIENCE)
    assert told_of_it == [True]
    assert names(engine, run_id) == "C S sc sc ss ss sf RE"


def test_scenario_032_a_member_that_exhausts_and_is_handled(engine):
    @step("fails", retry=RetryPolicy.none().continue_workflow_on_failure())
    def fails():
        raise ValueError("no")

    @step("fine")
    def fine():
        return 1

    w = batch(
        ("a", fails, None, None),
        ("b", fine, None, None),
        then=lambda ctx: ctx.complete([ctx.step_failed("a"), ctx.step_output("b")]),
    )
    run_id = engine.start(w)
    assert sorted(told(engine, run_id)[6:8]) == ["sf:a", "sk:b"]
    assert engine.snapshot(run_id).output == ["ValueError: no", 1]


def test_scenario_034_a_batch_whose_member_changed(engine, twice, clock):
    policy = RetryPolicy.fixed(2, timedelta(minutes=1))
    run_id = engine.start(batch(("a", twice, {"n": 1}, policy), ("b", twice, {"n": 2}, policy)), run_id="r")
    before = engine.history(run_id)

    def changed(ctx):
        return ctx.schedule_steps(
            [ctx.step("a", twice, {"n": 1}, retry=policy), ctx.step("b", twice, {"n": 3}, retry=policy)]
        )

    redefine("w", changed)
    clock.advance(timedelta(minutes=1))
    with pytest.raises(NonDeterministicError, match=r"input of step 'b'.*history=\{\"n\":2\}; replay=\{\"n\":3\}"):
        engine.resume_scheduled_run(run_id)
    assert engine.history(run_id) == before
    assert len(twice.calls) == 2


def test_scenario_034_a_batch_may_grow(engine, twice, clock):
    """A new member beside known ones is created; members that are not named are left alone."""
    policy = RetryPolicy.fixed(2, timedelta(minutes=1))

    @step("fine")
    def fine():
        return 1

    run_id = engine.start(batch(("a", twice, None, policy), ("b", twice, None, policy)), run_id="r")
    redefine("w", lambda ctx: ctx.schedule_steps([ctx.step("b", twice, retry=policy), ctx.step("c", fine)])
             if not ctx.step_completed("c") else ctx.complete("done"))  # fmt: skip
    engine.drive(run_id)
    assert told(engine, run_id)[8:] == ["sc:c", "ss:c", "sk:c", "RC"]


@pytest.mark.parametrize(
    ("ids", "reason"), [([], "at least one"), (["a", "a"], "twice"), ([" "], "step id"), (["a", ""], "step id")]
)
def test_batches_that_are_refused(engine, ids, reason):
    @step("s")
    def s():
        return 1

    @workflow("w")
    def w(ctx):
        return ctx.schedule_steps([ctx.step(step_id, s) for step_id in ids])

    with pytest.raises(InvalidTransitionError, match=reason):
        engine.start(w, run_id="r")
    assert names(engine, "r") == "C S"


def test_a_batch_that_has_settled_again(engine):
    @step("s")
    def s():
        return 1

    @workflow("w")
    def w(ctx):
        return ctx.schedule_steps([ctx.step("a", s), ctx.step("b", s)])

    with pytest.raises(InvalidTransitionError, match="has settled"):
        engine.start(w, run_id="r")
    assert names(engine, "r") == "C S sc sc ss ss sk sk"


def test_scenario_035_a_member_that_dies_without_a_result(engine):
    calls = []

    @step("dies")
    def dies():
        calls.append(1)
        if len(calls) == 1:
            raise SystemExit("killed")
        return "lived"

    @step("fine")
    def fine():
        return 1

    w = batch(("a", dies, None, None), ("b", fine, None, None))
    if not engine.store.threads_see_writes():
        pytest.skip("members run one after another here")
    with pytest.raises(RuntimeFailureError, match="died"):
        engine.start(w, run_id="r")
    assert engine.snapshot("r").steps["a"].status == "running"
    assert restarted(engine).drive("r").output == {"a": "lived", "b": 1}
    assert numbered(engine, "r").count("ss1") == 2
    assert len(calls) == 2


def test_a_batch_wider_than_the_threads(engine):
    @step("s")
    def s(value):
        return value

    width = engine.services.options.step_threads * 3
    run_id = engine.start(batch(*((f"m{at:02}", s, at, None) for at in range(width))))
    assert engine.snapshot(run_id).output == {f"m{at:02}": at for at in range(width)}


def test_no_body_starts_once_the_run_has_ended(engine):
    """Members that wait for a thread never start when a sibling's exhaustion has ended the run."""
    started = []

    @step("fails", retry=RetryPolicy.none())
    def fails(ctx):
        started.append(ctx.step_id)
        raise ValueError("no")

    restricted = restarted(engine)
    object.__setattr__(restricted.services.options, "step_threads", 1)
    run_id = restricted.start(batch(*((f"m{at}", fails, None, None) for at in range(4))))
    assert engine.snapshot(run_id).status == "failed"
    assert started == ["m0"]
