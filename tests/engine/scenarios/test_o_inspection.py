"""Scenarios 136 to 139: what can be asked about runs, and who is told of what."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest
from django.db import transaction

from flow_app import RetryPolicy, WorkflowProgress, step, workflow
from flow_app.core.snapshot import RunStatus
from flow_app.engine.inspection import Suspension
from flow_app.errors import RunNotFoundError
from flow_app.signals import event_recorded
from flow_app.store import DjangoEventStore
from tests.engine.logbook import inline, story

HOUR = timedelta(hours=1)


@pytest.fixture(autouse=True)
def flows(clock):
    now = clock.now()

    @step("fails", retry=RetryPolicy.fixed(2, HOUR))
    def fails():
        raise ValueError("no")

    @step("works")
    def works():
        return 1

    @workflow("timer")
    def timer(ctx):
        return ctx.complete() if ctx.wait_completed("w") else ctx.wait_until("w", now + HOUR)

    @workflow("hook")
    def hook(ctx):
        return ctx.complete() if ctx.hook_received("h") else ctx.create_hook("h", f"token of {ctx.run_id}")

    @workflow("retry")
    def retry(ctx):
        return ctx.schedule_step("a", fails)

    @workflow("short")
    def short(ctx):
        return ctx.complete() if ctx.step_completed("s") else ctx.schedule_step("s", works)

    @workflow("several")
    def several(ctx):
        """Opens a retry, a hook and two timers, in no order of their ids."""
        if not ctx.step_scheduled("z-step"):
            return ctx.schedule_step("z-step", fails)
        if not ctx.hook_created("m-hook"):
            return ctx.create_hook("m-hook")
        if not ctx.wait_scheduled("y-wait"):
            return ctx.wait_until("y-wait", now + 3 * HOUR)
        return ctx.wait_until("x-wait", now + 2 * HOUR)

    @workflow("cancelling")
    def cancelling(ctx):
        return ctx.create_hook("cleanup" if ctx.cancellation_request else "h")


@pytest.fixture
def runs(engine):
    """One run of each kind, created against the order of their ids."""
    for run_id, name in (("r7", "several"), ("r5", "short"), ("r3", "retry"), ("r2", "hook"), ("r1", "timer")):
        engine.start(name, run_id=run_id)
    engine.start("cancelling", run_id="r4")
    engine.request_cancellation("r4", "enough")
    engine.start("hook", run_id="r6")
    engine.force_cancel("r6")
    return engine


def test_scenario_136_runs_and_snapshots_come_by_id(runs):
    ids = ["r1", "r2", "r3", "r4", "r5", "r6", "r7"]
    assert runs.list_run_ids() == ids
    assert [snapshot.run_id for snapshot in runs.list_snapshots()] == ids


def test_scenario_136_the_summary_counts_every_status_and_what_open_runs_have_open(runs):
    assert runs.run_summary() == {
        "total": 7, "pending": 0, "running": 0, "suspended": 4, "cancelling": 1, "completed": 1, "failed": 0,
        "cancelled": 1, "terminal": 2, "non_terminal": 5, "open_waits": 3, "active_hooks": 3, "pending_retries": 2,
    }  # fmt: skip


def test_scenario_136_without_runs_everything_is_zero(engine):
    summary = engine.run_summary()
    assert set(summary.values()) == {0}
    assert "cancelling" in summary
    assert (engine.list_run_ids(), engine.list_open_suspensions(), engine.next_wakeup()) == ([], [], None)


def test_open_suspensions_come_by_run_then_wait_hook_retry_then_id(runs, clock):
    now = clock.now()
    at = now + 2 * HOUR
    assert runs.list_open_suspensions(at) == [
        Suspension("r1", "wait", "w", now + HOUR, is_due=True),
        Suspension("r2", "hook", "h", None, is_due=False),
        Suspension("r3", "retry", "a", now + HOUR, is_due=True),
        Suspension("r4", "hook", "cleanup", None, is_due=False),
        Suspension("r7", "wait", "x-wait", now + 2 * HOUR, is_due=True),
        Suspension("r7", "wait", "y-wait", now + 3 * HOUR, is_due=False),
        Suspension("r7", "hook", "m-hook", None, is_due=False),
        Suspension("r7", "retry", "z-step", now + HOUR, is_due=True),
    ]
    assert not any(item.is_due for item in runs.list_open_suspensions())


def test_due_lists_are_sorted_and_stop_at_now(runs, clock):
    at = clock.now() + HOUR
    assert runs.list_due_waits() == runs.list_due_retries() == runs.list_due_wakeups() == []
    assert runs.list_due_waits(at) == [("r1", "w")]
    assert runs.list_due_retries(at) == [("r3", "a"), ("r7", "z-step")]
    later = [(item.kind, item.run_id, item.subject_id) for item in runs.list_due_wakeups(at + HOUR)]
    assert later == [
        ("wait", "r1", "w"),
        ("wait", "r7", "x-wait"),
        ("retry", "r3", "a"),
        ("retry", "r7", "z-step"),
    ]


def test_the_next_wakeup_is_the_earliest_then_the_first_run(runs, clock):
    found = runs.next_wakeup()
    assert (found.run_id, found.kind, found.subject_id) == ("r1", "wait", "w")
    assert found.scheduled_at == clock.now() + HOUR
    runs.force_cancel("r1")
    found = runs.next_wakeup()
    assert (found.run_id, found.kind, found.subject_id) == ("r3", "retry", "a")


def test_a_hook_deadline_does_not_hide_the_next_wakeup(engine, clock):
    """Hooks never count, though the run looks at their deadlines too."""
    now = clock.now()

    @workflow("deadline")
    def deadline(ctx):
        if not ctx.hook_created("h"):
            return ctx.create_hook("h", expires_at=now + timedelta(minutes=1))
        return ctx.wait_until("w", now + 2 * HOUR)

    engine.start(deadline, run_id="a")
    assert (engine.next_wakeup().subject_id, engine.next_wakeup().scheduled_at) == ("w", now + 2 * HOUR)
    engine.start("timer", run_id="b")
    assert engine.next_wakeup().run_id == "b"


def test_a_hook_deadline_alone_is_no_wakeup(engine, clock):
    @workflow("deadline")
    def deadline(ctx):
        return ctx.create_hook("h", expires_at=clock.now() + HOUR)

    engine.start(deadline, run_id="a")
    assert engine.next_wakeup() is None
    engine.start("timer", run_id="b")
    assert engine.next_wakeup().run_id == "b"


def test_active_hooks_come_by_run_and_hook_with_digests(runs):
    hooks = runs.list_active_hooks()
    assert [(hook.run_id, hook.hook_id) for hook in hooks] == [("r2", "h"), ("r4", "cleanup"), ("r7", "m-hook")]
    assert all(hook.token_digest.startswith("sha256:") for hook in hooks)
    assert "token of r2" not in repr(hooks)


@pytest.mark.parametrize("ask", ["snapshot", "history", "runtime_build_id", "drive"])
def test_an_unknown_run_is_an_error(engine, ask):
    with pytest.raises(RunNotFoundError):
        getattr(engine, ask)("r9")


# --- observers ------------------------------------------------------------------------------------------------------


class Watching:
    def __init__(self) -> None:
        self.seen = []

    def on_event(self, envelope):
        self.seen.append(envelope)


class Failing:
    def on_event(self, envelope):
        raise RuntimeError("the metrics server is away")


@pytest.fixture
def watchers():
    return [Watching(), Watching()]


@pytest.fixture
def watched(store, watchers):
    return inline(store, observers=[watchers[0], Failing(), watchers[1]])


def test_scenario_137_observers_see_exactly_the_stored_events_in_order(watched, watchers, clock):
    watched.start("timer", run_id="r1", actor="ann")
    watched.record_progress("r1", WorkflowProgress("p", 1))
    watched.resume_wait("r1", "w")
    assert story(watched) == "C S wc:w PG wk:w RC"
    for watcher in watchers:
        assert watcher.seen == watched.history("r1")


def test_scenario_137_steps_retries_and_cleanup_are_seen_too(watched, watchers, clock):
    watched.start("retry", run_id="r1")
    clock.advance(HOUR)
    watched.resume_scheduled_run("r1")
    watched.start("cancelling", run_id="r2")
    watched.request_cancellation("r2", "enough")
    watched.force_cancel("r2")
    assert story(watched) == "C S sc:a ss:a#1 sr:a#1 ss:a#2 sf:a#2 RE:a#2"
    assert story(watched, "r2") == "C S hc:h CR hc:cleanup RX"
    assert watchers[0].seen == watchers[1].seen == watched.history("r1") + watched.history("r2")


def test_scenario_137_an_idempotent_repeat_adds_none(watched, watchers):
    watched.start("hook", run_id="r1")
    watched.resume_hook("r1", "h", 1)
    seen = list(watchers[0].seen)
    watched.start("hook", run_id="r1")
    watched.resume_hook("r1", "h", 1)
    watched.drive("r1")
    watched.force_cancel("r1")
    assert watchers[0].seen == seen == watched.history("r1")


def test_scenario_137_an_outcome_that_was_appended_after_a_conflict_is_seen_once(watched, watchers):
    @step("chatty")
    def chatty(ctx):
        watched.record_progress(ctx.run_id, WorkflowProgress("from-the-step", 1))

    @workflow("conflict")
    def conflict(ctx):
        return ctx.complete() if ctx.step_completed("a") else ctx.schedule_step("a", chatty)

    watched.start(conflict, run_id="r1")
    assert story(watched) == "C S sc:a ss:a#1 PG sk:a RC"
    assert watchers[0].seen == watched.history("r1")


def test_scenario_137_a_signal_goes_out_after_commit(engine):
    seen = []

    def receive(sender, envelope, **kwargs):
        seen.append((sender, envelope))

    event_recorded.connect(receive)
    try:
        engine.start("short", run_id="r1")
    finally:
        event_recorded.disconnect(receive)
    assert seen == [("short", envelope) for envelope in engine.history("r1")]


@pytest.mark.django_db(transaction=True)
def test_scenario_137_inside_the_callers_transaction_nobody_is_told_before_it_commits(clock, watchers):
    engine = inline(DjangoEventStore(clock=clock), observers=watchers)
    with transaction.atomic():
        engine.start("hook", run_id="r1")
        assert watchers[0].seen == []
    assert watchers[0].seen == engine.history("r1")
    assert story(engine) == "C S hc:h"

    seen = list(watchers[0].seen)
    with transaction.atomic():
        engine.resume_hook("r1", "h", 1)
        transaction.set_rollback(True)
    assert watchers[0].seen == seen


# --- envelopes ------------------------------------------------------------------------------------------------------


def test_scenario_139_an_envelope_as_json(engine, clock):
    engine.start("hook", run_id="r1")
    engine.force_cancel("r1")
    wires = [envelope.to_wire() for envelope in engine.history("r1")]
    assert json.loads(json.dumps(wires)) == wires
    for sequence, (wire, envelope) in enumerate(zip(wires, engine.history("r1"), strict=True), start=1):
        assert set(wire) == {"run_id", "sequence", "event_id", "timestamp", "event"}
        assert (wire["run_id"], wire["sequence"]) == ("r1", sequence)
        assert wire["event_id"] == str(envelope.event_id)
        assert wire["timestamp"] == "2030-01-01T00:00:00Z"
        assert wire["event"]["type"] == envelope.type
    assert wires[-1]["event"] == {"type": "run_cancelled", "reason": None}
    assert wires[2]["event"]["token"].startswith("sha256:")
    assert "expires_at" not in wires[2]["event"]


def test_scenario_139_who_did_it_stands_beside_the_event(engine):
    engine.start("hook", run_id="r1", actor="ann")
    engine.resume_hook("r1", "h", 1, actor="bob")
    history = engine.history("r1")
    assert [dict(envelope.meta) for envelope in history] == [{"actor": "ann"}] * 2 + [{}, {"actor": "bob"}, {}]
    assert history[3].to_wire()["meta"] == {"actor": "bob"}
    assert engine.snapshot("r1").status is RunStatus.COMPLETED
