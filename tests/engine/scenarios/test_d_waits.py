"""Scenarios 37 to 44: timers."""

from __future__ import annotations

import threading
from datetime import datetime, timedelta, timezone

import pytest

from flow_app import RetryPolicy, step, workflow
from flow_app.core.ports import WakeReason
from flow_app.errors import InvalidTransitionError, NonDeterministicError, RunTerminalError
from tests.engine.scenarios.support import PATIENCE, Crowd, engine_on, names, redefine, restarted

HOUR = timedelta(hours=1)


@pytest.fixture
def timer():
    @workflow("timer")
    def timer(ctx):
        return ctx.complete("woken") if ctx.wait_completed("w") else ctx.wait_until("w", ctx.input)

    return timer


def test_scenario_037_only_what_is_due_is_resumed(engine, timer, clock):
    now = clock.now()
    due = engine.start(timer, now + HOUR, run_id="due")
    later = engine.start(timer, now + 2 * HOUR, run_id="later")
    assert names(engine, due) == names(engine, later) == "C S wc"
    assert engine.snapshot(due).status == "suspended"

    assert engine.list_due_waits(now) == []
    assert engine.list_due_waits(now + HOUR - timedelta(microseconds=1)) == []
    assert engine.list_due_waits(now + HOUR) == [("due", "w")]
    assert engine.resume_due_waits(now + HOUR) == [("due", "w")]
    assert names(engine, due) == "C S wc wk RC"
    assert engine.snapshot(later).status == "suspended"
    assert engine.resume_due_waits(now + HOUR) == []


def test_scenario_037_a_time_already_past_when_created(engine, timer, clock):
    run_id = engine.start(timer, clock.now() - HOUR)
    assert names(engine, run_id) == "C S wc"
    assert engine.snapshot(run_id).status == "suspended"
    engine.drive(run_id)  # drive alone completes no timer
    assert names(engine, run_id) == "C S wc"
    row = engine.store.row(run_id)
    assert row.wake_at <= clock.now()
    assert row.wake_reason == WakeReason.TIMER

    assert [(item.kind, item.subject_id) for item in engine.resume_scheduled_run(run_id)] == [("wait", "w")]
    assert names(engine, run_id) == "C S wc wk RC"


def test_scenario_037_the_times_zone_does_not_matter(engine, timer, clock):
    at = clock.now() + HOUR
    run_id = engine.start(timer, at.astimezone(timezone(timedelta(hours=5))))
    assert engine.snapshot(run_id).waits["w"].resume_at == at
    assert engine.list_due_waits(at) == [(run_id, "w")]
    clock.advance(HOUR)
    engine.resume_scheduled_run(run_id)
    assert engine.snapshot(run_id).output == "woken"


def test_a_host_may_resume_early(engine, timer, clock):
    run_id = engine.start(timer, clock.now() + HOUR)
    assert engine.resume_wait(run_id, "w") is True
    assert names(engine, run_id) == "C S wc wk RC"


def test_scenario_038_resumed_again_after_the_end(engine, timer, clock):
    run_id = engine.start(timer, clock.now() + HOUR)
    engine.resume_wait(run_id, "w")
    before = engine.history(run_id)

    assert engine.resume_wait(run_id, "w") is False
    assert engine.history(run_id) == before
    with pytest.raises(RunTerminalError):
        engine.resume_wait(run_id, "nobody")


def test_scenario_038_resumed_again_on_a_live_run(engine, clock):
    @workflow("w")
    def w(ctx):
        return ctx.create_hook("h") if ctx.wait_completed("w") else ctx.wait_until("w", ctx.input)

    run_id = engine.start(w, clock.now() + HOUR)
    assert engine.resume_wait(run_id, "w") is True
    assert engine.resume_wait(run_id, "w") is False
    assert names(engine, run_id) == "C S wc wk hc"
    assert engine.snapshot(run_id).status == "suspended"


@pytest.mark.parametrize(
    "store", [pytest.param("django", marks=pytest.mark.django_db(transaction=True))], indirect=True
)
def test_scenario_040_two_scans_at_once(store, timer, clock):
    engines = [engine_on(store), engine_on(store)]
    run_id = engines[0].start(timer, clock.now() + HOUR)
    barrier = threading.Barrier(2, timeout=PATIENCE)

    def scan(engine):
        barrier.wait()
        return engine.resume_due_waits(clock.now() + HOUR)

    found = Crowd(*(lambda engine=engine: scan(engine) for engine in engines)).join()
    assert sorted(found) == [[], [(run_id, "w")]]
    assert names(engines[0], run_id) == "C S wc wk RC"


@pytest.mark.parametrize(
    "store", [pytest.param("django", marks=pytest.mark.django_db(transaction=True))], indirect=True
)
def test_scenario_040_two_workers_at_once(store, timer, clock):
    """Two hints for one due run: one worker completes the timer, nobody is told of an error."""
    engines = [engine_on(store), engine_on(store)]
    run_id = engines[0].start(timer, clock.now() + HOUR)
    clock.advance(HOUR)
    barrier = threading.Barrier(2, timeout=PATIENCE)

    def work(engine):
        barrier.wait()
        return [item.subject_id for item in engine.resume_scheduled_run(run_id)]

    found = Crowd(*(lambda engine=engine: work(engine) for engine in engines)).join()
    assert sorted(found) == [[], ["w"]]
    assert names(engines[0], run_id) == "C S wc wk RC"


def test_scenario_041_a_wait_that_was_never_created(engine, timer, clock):
    run_id = engine.start(timer, clock.now() + HOUR)
    with pytest.raises(InvalidTransitionError, match="never created"):
        engine.resume_wait(run_id, "nobody")
    assert names(engine, run_id) == "C S wc"


def test_scenario_043_a_completed_wait_again(engine, clock):
    """Section 14: refused at once instead of spinning to the replay limit."""
    asked = []

    @workflow("w")
    def w(ctx):
        asked.append(1)
        return ctx.wait_until("w", ctx.input)

    run_id = engine.start(w, clock.now() + HOUR)
    with pytest.raises(InvalidTransitionError, match="already completed"):
        engine.resume_wait(run_id, "w")
    assert names(engine, run_id) == "C S wc wk"
    assert len(asked) == 3  # to declare it, to see that nothing else is to be done, and after it
    assert engine.snapshot(run_id).status == "running"
    assert engine.store.row(run_id).blocked_code == "invalid_transition"


@pytest.mark.parametrize("resumed", [True, False])
def test_scenario_044_a_wait_with_another_time(engine, timer, clock, resumed):
    at = clock.now() + HOUR
    run_id = engine.start(timer, at)
    redefine("timer", lambda ctx: ctx.wait_until("w", at + HOUR))
    with pytest.raises(NonDeterministicError) as caught:
        engine.resume_wait(run_id, "w") if resumed else engine.drive(run_id)
    assert 'history="2030-01-01T01:00:00Z"; replay="2030-01-01T02:00:00Z"' in str(caught.value)
    assert names(engine, run_id) == ("C S wc wk" if resumed else "C S wc")


@pytest.mark.parametrize("at", [datetime(2030, 1, 1), "2030-01-01", 5, None])
def test_a_time_that_is_no_instant(engine, at):
    @workflow("w")
    def w(ctx):
        return ctx.wait_until("w", at)

    with pytest.raises(InvalidTransitionError, match="resume_at of wait 'w'"):
        engine.start(w, run_id="r")
    assert names(engine, "r") == "C S"


def test_microseconds_of_a_timer_are_kept(engine, timer, clock):
    at = clock.now() + timedelta(hours=1, microseconds=1)
    run_id = engine.start(timer, at)
    clock.advance(HOUR)
    assert engine.resume_scheduled_run(run_id) == []
    assert engine.store.row(run_id).wake_at == at
    clock.advance(timedelta(microseconds=1))
    assert len(engine.resume_scheduled_run(run_id)) == 1


# --- several at once -------------------------------------------------------------------------------------------------


@pytest.fixture
def race():
    """A hook and a timer, open together: whichever is first decides."""

    @workflow("race")
    def race(ctx):
        if not ctx.hook_created("h"):
            return ctx.create_hook("h")
        if not ctx.wait_scheduled("w"):
            return ctx.wait_until("w", ctx.input)
        if ctx.hook_received("h"):
            return ctx.complete(["hook", ctx.hook_payload("h")])
        if ctx.wait_completed("w"):
            return ctx.complete(["timer"])
        return ctx.create_hook("h")

    return race


def test_a_hook_and_a_timer_are_open_together(engine, race, clock):
    at = clock.now() + HOUR
    run_id = engine.start(race, at)
    assert names(engine, run_id) == "C S hc wc"
    assert engine.snapshot(run_id).status == "suspended"
    row = engine.store.row(run_id)
    assert (row.open_waits, row.active_hooks, row.wake_at, row.timer_at) == (1, 1, at, at)
    assert row.lease_expires_at is None
    assert [(item.kind, item.subject_id) for item in engine.list_open_suspensions()] == [("wait", "w"), ("hook", "h")]
    assert restarted(engine).drive(run_id).last_sequence == 4


def test_the_hook_is_first(engine, race, clock):
    run_id = engine.start(race, clock.now() + HOUR)
    engine.resume_hook(run_id, "h", "yes")
    assert names(engine, run_id) == "C S hc wc hr RC"
    run = engine.snapshot(run_id)
    assert run.output == ["hook", "yes"]
    assert run.waits["w"].status == "cancelled"
    assert engine.list_due_waits(clock.now() + HOUR) == []
    assert engine.store.row(run_id).wake_at is None


def test_the_timer_is_first(engine, race, clock):
    run_id = engine.start(race, clock.now() + HOUR)
    clock.advance(HOUR)
    engine.resume_scheduled_run(run_id)
    assert names(engine, run_id) == "C S hc wc wk RC"
    run = engine.snapshot(run_id)
    assert run.output == ["timer"]
    assert run.hooks["h"].status == "cancelled"
    assert engine.list_active_hooks() == []
    with pytest.raises(RunTerminalError):
        engine.resume_hook(run_id, "h", "late")


def test_timers_due_together_come_in_one_go_earliest_first(engine, clock):
    now = clock.now()

    @workflow("w")
    def w(ctx):
        for at in (3, 1, 2):
            if not ctx.wait_scheduled(f"w{at}"):
                return ctx.wait_until(f"w{at}", now + at * HOUR)
        if all(ctx.wait_completed(f"w{at}") for at in (1, 2, 3)):
            return ctx.complete()
        return next(ctx.wait_until(f"w{at}", now + at * HOUR) for at in (1, 2, 3) if not ctx.wait_completed(f"w{at}"))

    run_id = engine.start(w)
    clock.advance(2 * HOUR)
    assert [item.subject_id for item in engine.resume_scheduled_run(run_id)] == ["w1", "w2"]
    assert names(engine, run_id) == "C S wc wc wc wk wk"
    assert engine.store.row(run_id).wake_at == now + 3 * HOUR
    clock.advance(HOUR)
    engine.resume_scheduled_run(run_id)
    assert engine.snapshot(run_id).status == "completed"


def test_a_step_runs_while_a_timer_is_open(engine, clock):
    """An open timer does not keep the workflow from asking for more."""

    @step("s")
    def s():
        return 1

    @workflow("w")
    def w(ctx):
        if not ctx.wait_scheduled("w"):
            return ctx.wait_until("w", ctx.input)
        if not ctx.step_completed("s"):
            return ctx.schedule_step("s", s)
        return ctx.complete() if ctx.wait_completed("w") else ctx.wait_until("w", ctx.input)

    run_id = engine.start(w, clock.now() + HOUR)
    assert names(engine, run_id) == "C S wc sc ss sk"
    clock.advance(HOUR)
    engine.resume_scheduled_run(run_id)
    assert names(engine, run_id) == "C S wc sc ss sk wk RC"


def test_a_delayed_retry_and_a_timer_wake_at_the_earlier(engine, clock):
    @step("s", retry=RetryPolicy.fixed(2, 2 * HOUR))
    def s(ctx):
        if ctx.attempt == 1:
            raise ValueError("once")
        return 1

    @workflow("w")
    def w(ctx):
        if not ctx.wait_scheduled("w"):
            return ctx.wait_until("w", ctx.input)
        return ctx.complete() if ctx.step_completed("s") else ctx.schedule_step("s", s)

    start = clock.now()
    run_id = engine.start(w, start + HOUR)
    row = engine.store.row(run_id)
    assert (row.wake_at, row.wake_reason, row.pending_retries) == (start + HOUR, WakeReason.TIMER, 1)
    clock.advance(HOUR)
    engine.resume_scheduled_run(run_id)
    row = engine.store.row(run_id)
    assert (row.wake_at, row.wake_reason) == (start + 2 * HOUR, WakeReason.RETRY)
    clock.advance(HOUR)
    engine.resume_scheduled_run(run_id)
    assert names(engine, run_id) == "C S wc sc ss sr wk ss sk RC"
