"""A run that is paused while somebody drives it: what happened is recorded, and nothing more is begun."""

from __future__ import annotations

import contextlib
from datetime import timedelta

import pytest

from flow_app import RetryPolicy, step, workflow
from flow_app.core.snapshot import RunStatus
from flow_app.dispatch import FlowScheduler
from flow_app.errors import RuntimeFailureError
from tests.engine.logbook import ASLEEP, queued, sleep_of, story

HOUR = timedelta(hours=1)
LEASE = timedelta(seconds=30)


class Meanwhile:
    """Two steps; the body of the first does ``act`` to the run it belongs to."""

    def __init__(self, store, **policy):
        self.host, self.queue = queued(store)
        self.act = None
        self.bodies = []

        @step("first", **policy)
        def first(ctx):
            self.bodies.append("a")
            if self.act is not None:
                self.act(self.host)
            return "receipt"

        @step("second")
        def second(ctx):
            self.bodies.append("b")

        @workflow("two")
        def two(ctx):
            for step_id, body in (("a", first), ("b", second)):
                if not ctx.step_completed(step_id):
                    return ctx.schedule_step(step_id, body)
            return ctx.complete(ctx.step_output("a"))

        self.two = two


def test_a_body_that_runs_ends_its_outcome_is_recorded_and_the_next_does_not_start(engine, store):
    flow = Meanwhile(store)
    flow.act = lambda host: host.pause("r1")
    engine.start(flow.two, run_id="r1")
    assert story(engine) == "C S sc:a ss:a#1 sk:a"
    row = engine.row("r1")
    assert (row.wake_at, row.wake_reason, row.lease_expires_at) == (*ASLEEP, None)
    engine.drive("r1")
    assert flow.bodies == ["a"]
    flow.act = None
    engine.unpause("r1")
    assert story(engine) == "C S sc:a ss:a#1 sk:a sc:b ss:b#1 sk:b RC"
    assert flow.bodies == ["a", "b"]


def test_a_pause_that_was_over_before_the_body_ended_changes_nothing(engine, store):
    flow = Meanwhile(store)

    def nap(host):
        host.pause("r1")
        host.unpause("r1")
        assert engine.row("r1").wake_reason == "driving"
        assert not host.run_now("r1")

    flow.act = nap
    engine.start(flow.two, run_id="r1")
    assert story(engine) == "C S sc:a ss:a#1 sk:a sc:b ss:b#1 sk:b RC"
    assert flow.bodies == ["a", "b"]


def test_a_step_that_fails_meanwhile_keeps_its_retry_for_later(engine, store, clock):
    flow = Meanwhile(store, retry=RetryPolicy.fixed(2, timedelta(minutes=2)))

    def fail(host):
        host.pause("r1")
        raise ValueError("not yet")

    flow.act = fail
    engine.start(flow.two, run_id="r1")
    assert story(engine) == "C S sc:a ss:a#1 sr:a#1"
    assert sleep_of(engine) == ASLEEP
    flow.act = None
    clock.advance(HOUR)
    assert not FlowScheduler(engine).tick().has_due_work
    engine.unpause("r1")
    assert engine.snapshot("r1").status is RunStatus.COMPLETED


def test_a_step_that_ends_the_run_meanwhile_ends_it(engine, store):
    flow = Meanwhile(store, retry=RetryPolicy.fixed(1))

    def fail(host):
        host.pause("r1")
        raise ValueError("never")

    flow.act = fail
    engine.start(flow.two, run_id="r1")
    row = engine.row("r1")
    assert row.status is RunStatus.FAILED
    assert (row.paused_at, row.wake_at, row.lease_expires_at) == (None, None, None)


def test_a_batch_that_runs_ends_whole(engine, store):
    host, _queue = queued(store)

    @step("member")
    def member(ctx, number):
        if number == 1:
            host.pause("r1")
        return number

    @workflow("batch")
    def batch(ctx):
        ids = [f"m{number}" for number in range(3)]
        if not all(map(ctx.step_completed, ids)):
            return ctx.schedule_steps([ctx.step(step_id, member, number) for number, step_id in enumerate(ids)])
        return ctx.complete()

    engine.start(batch, run_id="r1")
    assert sorted(word for word in story(engine).split() if word.startswith("sk")) == ["sk:m0", "sk:m1", "sk:m2"]
    assert engine.row("r1").lease_expires_at is None
    engine.unpause("r1")
    assert engine.snapshot("r1").status is RunStatus.COMPLETED


@pytest.mark.parametrize("command", ["create_hook", "fail", "raise"])
def test_a_decision_made_meanwhile_is_not_recorded(engine, store, command):
    host, _queue = queued(store)
    paused_once = []

    @workflow("deciding")
    def deciding(ctx):
        if not paused_once:
            paused_once.append(host.pause("r1"))
        if command == "raise":
            raise ValueError("broken")
        return ctx.create_hook("h") if command == "create_hook" else ctx.fail("no")

    with contextlib.suppress(RuntimeFailureError):
        engine.start(deciding, run_id="r1")
    assert story(engine) == "C S"
    assert sleep_of(engine) == ASLEEP
    assert engine.row("r1").lease_expires_at is None


def test_a_driver_that_parks_meanwhile_sets_no_wake_up(engine, store, clock):
    host, _queue = queued(store)
    at = clock.now() + HOUR
    calls = []

    @workflow("parking")
    def parking(ctx):
        calls.append(1)
        if len(calls) == 3:  # the timer is recorded, and the run is about to be parked
            host.pause("r1")
        return ctx.wait_until("w", at)

    engine.start(parking, run_id="r1")
    engine.drive("r1")
    engine.drive("r1")
    assert engine.row("r1").paused_at is not None
    assert (sleep_of(engine), engine.row("r1").lease_expires_at) == (ASLEEP, None)


def test_a_process_that_is_stopped_meanwhile_leaves_no_wake_up(engine, store):
    flow = Meanwhile(store)

    def stop(host):
        host.pause("r1")
        raise KeyboardInterrupt

    flow.act = stop
    with pytest.raises(KeyboardInterrupt):
        engine.start(flow.two, run_id="r1")
    assert sleep_of(engine) == ASLEEP
    flow.act = None
    engine.unpause("r1")
    assert engine.snapshot("r1").status is RunStatus.COMPLETED


def test_a_driver_that_died_meanwhile_is_taken_over_after_the_pause(engine, store, clock):
    flow = Meanwhile(store)
    flow.host.start(flow.two, run_id="r1")
    store.claim("r1", lease=LEASE)  # and its process dies
    flow.host.pause("r1")
    clock.advance(HOUR)
    assert not FlowScheduler(engine).tick().has_due_work
    engine.unpause("r1")
    assert engine.snapshot("r1").status is RunStatus.COMPLETED
