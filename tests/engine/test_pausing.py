"""Pause, unpause, run now: what is no event of a run, and at every door of a paused one."""

from __future__ import annotations

from datetime import timedelta

import pytest

from flow_app import WorkflowProgress, workflow
from flow_app.core.policy import ChildOperationReference
from flow_app.core.snapshot import RunStatus
from flow_app.dispatch import FlowScheduler
from flow_app.errors import (
    InvalidTransitionError,
    RunNotFoundError,
    RunTerminalError,
    RuntimeBuildUnavailableError,
    RuntimeFailureError,
)
from flow_app.store import DjangoEventStore, InMemoryEventStore
from flow_app.store.retention import RetentionStore
from tests.engine.logbook import ASLEEP, inline, of_build, queued, sleep_of, story
from tests.store.support import at_once

HOUR = timedelta(hours=1)


@pytest.fixture
def waiting():
    """A workflow that waits for an answer, or an hour, and then for its timer alone."""

    @workflow("waiting")
    def flow(ctx):
        if ctx.cancellation_request:
            return ctx.cancel()
        if not ctx.wait_scheduled("w"):
            return ctx.wait_until("w", ctx.input)
        if not ctx.hook_payload("h"):
            return ctx.create_hook("h")
        if not ctx.wait_completed("w"):
            return ctx.wait_until("w", ctx.input)
        return ctx.complete("done")

    return flow


@pytest.fixture
def paused(engine, waiting, clock):
    engine.start(waiting, clock.now() + HOUR, run_id="r1")
    assert engine.pause("r1")
    return engine


def test_pausing_twice_is_pausing_once(paused, clock):
    at = clock.now()
    clock.advance(HOUR)
    assert not paused.pause("r1")
    assert paused.row("r1").paused_at == at
    assert paused.unpause("r1")
    assert not paused.unpause("r1")
    assert paused.row("r1").paused_at is None


@pytest.mark.parametrize(
    "way_on", [lambda engine: engine.unpause("r1", actor="bea"), lambda engine: engine.force_cancel("r1")]
)
def test_who_paused_a_run_stands_on_its_row_for_as_long_as_it_sleeps(engine, waiting, clock, way_on):
    engine.start(waiting, clock.now() + HOUR, run_id="r1")
    assert engine.row("r1").paused_by == ""
    engine.pause("r1", actor="ann")
    engine.pause("r1", actor="bea")
    assert engine.row("r1").paused_by == "ann"
    way_on(engine)
    assert engine.row("r1").paused_by == ""


def test_whose_name_is_long_or_unprintable_pauses_all_the_same(engine, waiting, clock):
    engine.start(waiting, clock.now() + HOUR, run_id="r1")
    assert engine.pause("r1", actor="a\0\ud800" + "n" * 1000)
    assert 0 < len(engine.row("r1").paused_by) <= 200


@pytest.mark.parametrize(
    ("actor", "by", "kept"),
    [
        ("ann", ", by ann", "ann"),
        (None, "", None),
        ("", "", None),
        ("ann\r\nRun r2\0", ", by ann\\r\\nRun r2\\x00", "ann\\r\\nRun r2\\x00"),
        ("n" * 300, ", by " + "n" * 199 + "…", "n" * 199 + "…"),
    ],
)
def test_who_operates_is_told_to_the_log(engine, waiting, clock, caplog, actor, by, kept):
    engine.start(waiting, clock.now() + HOUR, run_id="r1")
    caplog.set_level("INFO", logger="flow_app.engine")
    for verb in (engine.run_now, engine.pause, engine.unpause):
        assert verb("r1", actor=actor)
    told = [(record.getMessage(), record.actor) for record in caplog.records if hasattr(record, "actor")]
    assert told == [
        (f"Run r1 is looked at now{by}", kept),
        (f"Run r1 is paused{by}", kept),
        (f"Run r1 is paused no more{by}", kept),
    ]


def test_a_pause_is_no_event_and_the_status_stays(paused):
    assert story(paused) == "C S wc:w hc:h"
    assert paused.snapshot("r1").status is RunStatus.SUSPENDED
    assert sleep_of(paused) == ASLEEP


def test_a_timer_keeps_its_time_and_does_not_fire(paused, clock):
    scheduler = FlowScheduler(paused)
    paused.resume_hook("r1", "h", "yes")
    clock.advance(2 * HOUR)
    assert not scheduler.tick().has_due_work
    assert scheduler.next_wakeup_delay() is None
    assert paused.resume_scheduled_run("r1") == []
    assert paused.resume_due_waits(clock.now()) == []
    assert paused.next_wakeup() is None
    assert story(paused) == "C S wc:w hc:h hr:h"
    paused.unpause("r1")
    assert story(paused) == "C S wc:w hc:h hr:h wk:w RC"


def test_a_timer_that_is_not_due_is_waited_for_after_the_pause(paused, clock):
    at = clock.now() + HOUR
    paused.resume_hook("r1", "h", "yes")
    paused.unpause("r1")
    assert sleep_of(paused) == (at, "timer")
    clock.advance(HOUR)
    FlowScheduler(paused).tick()
    assert paused.snapshot("r1").status is RunStatus.COMPLETED


def test_what_arrives_is_kept_and_brings_no_wake_up(paused):
    assert paused.resume_hook("r1", "h", "yes")
    assert sleep_of(paused) == ASLEEP
    assert paused.resume_wait("r1", "w")
    assert sleep_of(paused) == ASLEEP
    assert paused.record_progress("r1", WorkflowProgress("p", 1))
    assert paused.link_child_operation("r1", ChildOperationReference("c", "job", "external-1"))
    assert sleep_of(paused) == ASLEEP
    assert story(paused) == "C S wc:w hc:h hr:h wk:w PG CH"
    paused.unpause("r1")
    assert story(paused) == "C S wc:w hc:h hr:h wk:w PG CH RC"


def test_a_start_with_the_same_id_finds_it_and_does_not_wake_it(paused, waiting, clock):
    assert paused.start(waiting, clock.now() + HOUR, run_id="r1") == "r1"
    paused.drive("r1")
    assert sleep_of(paused) == ASLEEP


def test_a_cancellation_request_is_kept_and_the_clean_up_follows_the_pause(paused):
    assert paused.request_cancellation("r1").status is RunStatus.CANCELLING
    assert sleep_of(paused) == ASLEEP
    paused.unpause("r1")
    assert story(paused) == "C S wc:w hc:h CR RX"


@pytest.mark.parametrize(
    "ending",
    [
        lambda engine, now: engine.force_cancel("r1"),
        lambda engine, now: engine.terminate_for_timeout("r1", now),
        lambda engine, now: engine.terminate_for_host_shutdown("r1"),
    ],
    ids=["cancelled", "timed out", "shut down"],
)
def test_ending_at_once_ends_a_paused_run(paused, clock, ending):
    assert ending(paused, clock.now())
    row = paused.row("r1")
    assert row.status.is_terminal
    assert (row.paused_at, row.wake_at, row.wake_reason) == (None, None, "ended")


@pytest.mark.parametrize("verb", ["pause", "unpause", "run_now"])
def test_a_run_that_has_ended_or_is_not_there_is_refused(engine, waiting, clock, verb):
    engine.start(waiting, clock.now() + HOUR, run_id="r1")
    engine.force_cancel("r1")
    with pytest.raises(RunTerminalError):
        getattr(engine, verb)("r1")
    with pytest.raises(RunNotFoundError):
        getattr(engine, verb)("missing")


@pytest.mark.django_db(transaction=True)
def test_retention_keeps_a_paused_run(clock, waiting):
    store = DjangoEventStore(clock=clock)
    engine = inline(store, retention=RetentionStore())
    engine.start(waiting, clock.now() + HOUR, run_id="r1")
    engine.pause("r1")
    clock.advance(400 * 24 * HOUR)
    assert list(engine.prune(clock.now()).non_terminal) == ["r1"]
    assert engine.row("r1").paused_at is not None


def test_a_copy_of_a_paused_runs_history_is_awake(paused, clock):
    other = inline(InMemoryEventStore(clock=clock))
    other.import_run(paused.history("r1"))
    assert other.row("r1").paused_at is None
    assert other.snapshot("r1") == paused.snapshot("r1")


# --- run now --------------------------------------------------------------------------------------------------------


def test_run_now_tries_a_blocked_run_at_once(engine):
    fixed = []

    @workflow("broken")
    def broken(ctx):
        if not fixed:
            raise ValueError("broken")
        return ctx.complete()

    with pytest.raises(RuntimeFailureError):
        engine.start(broken, run_id="r1")
    assert engine.row("r1").wake_reason == "blocked"
    with pytest.raises(RuntimeFailureError):
        engine.run_now("r1")
    assert engine.row("r1").blocked_count == 2
    fixed.append(True)
    assert engine.run_now("r1")
    assert engine.snapshot("r1").status is RunStatus.COMPLETED


def test_run_now_sends_a_hint_that_was_lost_again_and_forgets_how_often_it_was_sent(store, waiting, clock):
    engine, queue = queued(store)
    engine.start(waiting, clock.now() + HOUR, run_id="r1")
    for _ in range(3):
        clock.advance(HOUR)
        FlowScheduler(engine).tick()
    queue.take()
    assert engine.row("r1").dispatches == 3
    assert engine.run_now("r1")
    assert (len(queue.take()), engine.row("r1").dispatches, engine.row("r1").wake_at) == (1, 0, clock.now())


def test_run_now_completes_no_timer_before_its_time(engine, waiting, clock):
    at = clock.now() + HOUR
    engine.start(waiting, at, run_id="r1")
    assert engine.run_now("r1")
    assert story(engine) == "C S wc:w hc:h"
    assert sleep_of(engine) == (at, "timer")


def test_run_now_of_a_paused_run_is_refused_and_says_what_helps(paused):
    with pytest.raises(InvalidTransitionError, match="unpause"):
        paused.run_now("r1")
    assert sleep_of(paused) == ASLEEP


def test_a_run_of_another_build_is_paused_and_unpaused_but_not_run_from_here(store, waiting, clock):
    v1, v2 = of_build(store, "v1"), of_build(store, "v2")
    v1.start(waiting, clock.now() + HOUR, run_id="r1")
    before = v1.row("r1")
    with pytest.raises(RuntimeBuildUnavailableError):
        v2.run_now("r1")
    assert v1.row("r1") == before
    assert v2.pause("r1")
    with pytest.raises(RuntimeBuildUnavailableError):
        v2.drive("r1")
    assert sleep_of(v1) == ASLEEP
    assert v2.unpause("r1")
    assert sleep_of(v1) == (clock.now(), "runnable")


# --- races ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "act",
    [
        lambda engine, run_id: engine.resume_hook(run_id, "h", "yes"),
        lambda engine, run_id: engine.request_cancellation(run_id),
        lambda engine, run_id: engine.resume_scheduled_run(run_id),
        lambda engine, run_id: engine.run_now(run_id),
        lambda engine, run_id: FlowScheduler(engine).tick(),
    ],
    ids=["resume", "cancellation", "drive", "run now", "tick"],
)
def test_a_pause_racing_it_leaves_the_run_asleep_or_ended(store, waiting, clock, act):
    engine = inline(store)
    at = clock.now() + HOUR
    for number in range(5):
        engine.start(waiting, at, run_id=f"r{number}")
    clock.advance(HOUR)
    for number in range(5):
        run_id = f"r{number}"
        results = at_once(lambda run_id=run_id: act(engine, run_id), lambda run_id=run_id: engine.pause(run_id))
        row = engine.row(run_id)
        if row.status.is_terminal:  # it was over before the pause, or while its last decision was made
            assert row.wake_at is None
            continue
        assert results[1] is True, results
        assert (row.wake_at, row.wake_reason, row.lease_expires_at) == (*ASLEEP, None)
        engine.unpause(run_id)
        assert engine.row(run_id).lease_expires_at is None
        assert engine.row(run_id).wake_reason != "paused"
