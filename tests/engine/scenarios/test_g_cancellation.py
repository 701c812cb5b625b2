"""Scenarios 65 to 76: cancellation, clean-up, and endings from outside."""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta

import pytest

from flow_app import (
    ChildOperationReference,
    RetryPolicy,
    RuntimeBuildCompatibility,
    WorkflowProgress,
    step,
    workflow,
)
from flow_app.core import events as ev
from flow_app.core import tokens
from flow_app.core.payload import NULL
from flow_app.errors import (
    InvalidTransitionError,
    RunConflictError,
    RunNotFoundError,
    RunTerminalError,
    RuntimeBuildUnavailableError,
)
from tests.engine.scenarios.support import (
    PATIENCE,
    Crowd,
    engine_on,
    imported,
    names,
    numbered,
    redefine,
    restarted,
    told,
)

HOUR = timedelta(hours=1)
DEADLINE = datetime(2031, 6, 1, tzinfo=UTC)


@pytest.fixture
def cleanup():
    """A step that cleans up, and how often it was called."""

    @step("cleanup")
    def cleanup(ctx):
        cleanup.calls.append(ctx.step_id)
        return "cleaned"

    cleanup.calls = []
    return cleanup


@pytest.fixture
def tidy(cleanup):
    """A run that waits; asked to stop, it cleans up and then ends as ``tidy.end`` says."""

    @workflow("tidy")
    def tidy(ctx):
        if ctx.cancellation_request is None:
            return ctx.wait_until("w", ctx.input)
        if not ctx.step_completed("cleanup"):
            return ctx.schedule_step("cleanup", cleanup)
        return tidy.end(ctx)

    tidy.end = lambda ctx: ctx.cancel()
    return tidy


def test_scenario_065_clean_up_then_cancel(engine, tidy, cleanup, clock):
    run_id = engine.start(tidy, clock.now() + HOUR, run_id="r")
    engine.link_child_operation(run_id, ChildOperationReference("c", "export", "op-1"))
    engine.record_progress(run_id, WorkflowProgress("p", 1, 2))

    run = engine.request_cancellation(run_id, "the customer left", actor="ann")
    assert names(engine, run_id) == "C S wc CH PG CR sc ss sk RX"
    assert run.status == "cancelled"
    assert run.error == "the customer left"
    assert (run.terminal_outcome.type, run.terminal_outcome.reason) == ("cancelled", "the customer left")
    assert run.waits["w"].status == "cancelled"
    assert run.step_output("cleanup") == "cleaned"
    assert run.child_operation("c").operation_id == "op-1"
    assert run.cancellation.request.reason == "the customer left"
    assert (run.cancellation.sequence, run.cancellation.requested_at) == (6, clock.now())
    assert engine.history(run_id)[5].meta == {"actor": "ann"}
    assert cleanup.calls == ["cleanup"]


def test_scenario_066_the_same_request_twice(engine, cleanup, clock):
    @workflow("w")
    def w(ctx):
        return ctx.create_hook("cleanup") if ctx.cancellation_request else ctx.wait_until("w", ctx.input)

    engine.start(w, clock.now() + HOUR, run_id="r")
    assert engine.request_cancellation("r", "why").status == "cancelling"
    assert engine.request_cancellation("r", "why").status == "cancelling"
    assert names(engine, "r") == "C S wc CR hc"
    for other in (None, "another"):
        with pytest.raises(RunConflictError, match="cancellation"):
            engine.request_cancellation("r", other)
    assert names(engine, "r") == "C S wc CR hc"


def test_scenario_066_a_request_to_a_run_that_has_ended(engine, tidy, clock):
    engine.start(tidy, clock.now() + HOUR, run_id="r")
    engine.request_cancellation("r", "why")
    for reason in ("why", "another", None):
        assert engine.request_cancellation("r", reason).status == "cancelled"
    assert names(engine, "r") == "C S wc CR sc ss sk RX"
    with pytest.raises(RunNotFoundError):
        engine.request_cancellation("nobody")


def test_scenario_066_a_request_needs_the_runs_build(engine, tidy, clock):
    own = restarted(engine, builds=RuntimeBuildCompatibility("b1"))
    own.start(tidy, clock.now() + HOUR, run_id="r")
    with pytest.raises(RuntimeBuildUnavailableError):
        restarted(engine, builds=RuntimeBuildCompatibility("b2")).request_cancellation("r")
    assert names(engine, "r") == "C S wc"


def test_scenario_066_a_request_whose_drive_fails_stays(engine, tidy, clock):
    engine.start(tidy, clock.now() + HOUR, run_id="r")
    code = tidy.function

    def broken(ctx):
        raise ValueError("not now")

    redefine("tidy", broken)
    with pytest.raises(Exception, match="not now"):
        engine.request_cancellation("r", "why")
    assert engine.snapshot("r").status == "cancelling"
    redefine("tidy", code)
    assert engine.request_cancellation("r", "why").status == "cancelled"
    assert names(engine, "r") == "C S wc CR sc ss sk RX"


def test_scenario_067_clean_up_then_timeout(engine, tidy, clock):
    tidy.end = lambda ctx: ctx.timeout(DEADLINE, "too slow")
    engine.start(tidy, clock.now() + HOUR, run_id="r")
    run = engine.request_cancellation("r")
    assert names(engine, "r") == "C S wc CR sc ss sk RT"
    assert run.status == "failed"
    outcome = run.terminal_outcome
    assert (outcome.type, outcome.deadline, outcome.reason) == ("timed_out", DEADLINE, "too slow")
    assert run.error == "too slow"


@pytest.fixture
def everything_open(engine, clock):
    """An imported run with a running step, one that waits for its retry, an open timer and an open hook."""
    hour = clock.now() + HOUR

    @step("s")
    def s():
        raise AssertionError("no step runs again")

    @workflow("w")
    def w(ctx):
        return ctx.create_hook("cleanup")

    policy = RetryPolicy.fixed(2, HOUR)
    return imported(
        engine,
        "r",
        ev.RunStarted(),
        ev.StepCreated("running", "s", NULL, policy),
        ev.StepStarted("running", 1),
        ev.StepCreated("retrying", "s", NULL, policy),
        ev.StepStarted("retrying", 1),
        ev.StepRetrying("retrying", 1, "once", hour),
        ev.WaitCreated("w", hour),
        ev.HookCreated("h", tokens.digest("t"), NULL),
    )


def test_scenario_068_a_request_closes_what_is_open(engine, everything_open, clock):
    engine.services.dispatcher = None
    run = engine.request_cancellation("r")
    assert run.status == "cancelling"
    assert [item.status for item in run.steps.values()] == ["cancelled", "cancelled"]
    assert run.steps["retrying"].retry_after is None
    assert (run.waits["w"].status, run.hooks["h"].status) == ("cancelled", "cancelled")
    later = clock.now() + 2 * HOUR
    assert engine.list_due_waits(later) == engine.list_due_retries(later) == engine.list_active_hooks() == []
    assert engine.list_open_suspensions() == []
    summary = engine.run_summary()
    assert {name: summary[name] for name in ("cancelling", "non_terminal", "total", "suspended")} == {
        "cancelling": 1, "non_terminal": 1, "total": 1, "suspended": 0,
    }  # fmt: skip
    assert [summary[name] for name in ("open_waits", "active_hooks", "pending_retries")] == [0, 0, 0]


@pytest.mark.parametrize("attempt_fails", [False, True])
def test_scenario_068_a_step_that_was_running_still_reports(engine, cleanup, attempt_fails):
    """Section 14: the receipt of a charge is not lost, a failure is not retried; clean-up sees either."""
    seen = []

    @step("charge", retry=RetryPolicy.fixed(3))
    def charge(ctx):
        engine.request_cancellation(ctx.run_id, "stop")
        if attempt_fails:
            raise ValueError("card refused")
        return "receipt-1"

    @workflow("w")
    def w(ctx):
        if ctx.cancellation_request is None:
            return ctx.schedule_step("charge", charge)
        seen.append((ctx.step_output("charge"), ctx.step_failed("charge")))
        return ctx.cancel()

    engine.start(w, run_id="r")
    run = engine.snapshot("r")
    assert run.status == "cancelled"
    if attempt_fails:
        assert numbered(engine, "r") == "C S sc ss1 CR sf1 RX"
        assert seen == [(None, "ValueError: card refused")]
        assert run.steps["charge"].status == "failed"
    else:
        assert numbered(engine, "r") == "C S sc ss1 CR sk RX"
        assert seen == [("receipt-1", None)]
        assert run.steps["charge"].status == "completed"


def test_scenario_068_members_of_a_batch_still_report_and_nothing_new_starts(engine):
    calls = []

    @step("s", retry=RetryPolicy.fixed(3))
    def s(ctx):
        calls.append((ctx.step_id, ctx.attempt))
        if ctx.step_id == "a":
            engine.request_cancellation(ctx.run_id)
            raise ValueError("no")
        return 1

    @workflow("w")
    def w(ctx):
        if ctx.cancellation_request:
            return ctx.cancel()
        return ctx.schedule_steps([ctx.step("a", s), ctx.step("b", s)])

    engine.start(w, run_id="r")
    run = engine.snapshot("r")
    assert run.status == "cancelled"
    assert (run.steps["a"].status, run.steps["b"].status) == ("failed", "completed")
    assert sorted(calls) == [("a", 1), ("b", 1)]
    assert sorted(told(engine, "r")[6:]) == ["CR", "RX", "sf:a", "sk:b"]


def test_scenario_068_a_late_failure_under_fail_run_is_the_workflows_to_handle(engine):
    @step("charge", retry=RetryPolicy.none())
    def charge(ctx):
        engine.request_cancellation(ctx.run_id)
        raise ValueError("no")

    @workflow("w")
    def w(ctx):
        return ctx.cancel() if ctx.cancellation_request else ctx.schedule_step("charge", charge)

    engine.start(w, run_id="r")
    assert names(engine, "r") == "C S sc ss CR sf RX"
    assert engine.snapshot("r").terminal_outcome.type == "cancelled"


def test_scenario_069_a_clean_up_step_that_exhausts_fails_the_run(engine, clock):
    @step("cleanup", retry=RetryPolicy.none())
    def cleanup():
        raise ValueError("cannot clean up")

    @workflow("w")
    def w(ctx):
        return ctx.schedule_step("c", cleanup) if ctx.cancellation_request else ctx.wait_until("w", ctx.input)

    engine.start(w, clock.now() + HOUR, run_id="r")
    run = engine.request_cancellation("r", "why")
    assert names(engine, "r") == "C S wc CR sc ss sf RE"
    assert run.status == "failed"
    assert run.terminal_outcome.type == "retry_exhausted"


def test_scenario_069_a_clean_up_step_is_retried_like_any_other(engine, clock):
    @step("cleanup", retry=RetryPolicy.fixed(2, HOUR))
    def cleanup(ctx):
        if ctx.attempt == 1:
            raise ValueError("once")

    @workflow("w")
    def w(ctx):
        if not ctx.cancellation_request:
            return ctx.wait_until("w", ctx.input)
        return ctx.cancel() if ctx.step_completed("c") else ctx.schedule_step("c", cleanup)

    engine.start(w, clock.now() + 5 * HOUR, run_id="r")
    assert engine.request_cancellation("r").status == "cancelling"
    assert engine.list_due_retries(clock.now() + HOUR) == [("r", "c")]
    clock.advance(HOUR)
    engine.resume_scheduled_run("r")
    assert names(engine, "r") == "C S wc CR sc ss sr ss sk RX"


@pytest.mark.parametrize(
    ("again", "match"),
    [
        (lambda ctx, at: ctx.wait_until("w", at), "wait 'w' was cancelled"),
        (lambda ctx, at: ctx.create_hook("h", "t"), "hook 'h' was cancelled"),
        (lambda ctx, at: ctx.schedule_step("running", "s", retry=RetryPolicy.fixed(2, HOUR)), "already cancelled"),
        (lambda ctx, at: ctx.schedule_step("retrying", "s", retry=RetryPolicy.fixed(2, HOUR)), "already cancelled"),
        (
            lambda ctx, at: ctx.schedule_steps([ctx.step("running", "s", retry=RetryPolicy.fixed(2, HOUR))]),
            "has settled",
        ),
    ],
)
def test_scenario_070_an_old_id_again(engine, everything_open, clock, again, match):
    at = clock.now() + HOUR
    redefine("w", lambda ctx: again(ctx, at))
    with pytest.raises(InvalidTransitionError, match=match):
        engine.request_cancellation("r")
    assert names(engine, "r") == "C S sc ss sc ss sr wc hc CR"
    assert engine.snapshot("r").status == "cancelling"


def test_scenario_071_complete_while_cancelling(engine, tidy, clock):
    tidy.end = lambda ctx: ctx.complete()
    engine.start(tidy, clock.now() + HOUR, run_id="r")
    with pytest.raises(InvalidTransitionError, match="complete is not allowed while cancelling"):
        engine.request_cancellation("r")
    assert names(engine, "r") == "C S wc CR sc ss sk"
    assert engine.snapshot("r").status == "cancelling"

    tidy.end = lambda ctx: ctx.fail("could not undo it")
    run = engine.request_cancellation("r")
    assert names(engine, "r") == "C S wc CR sc ss sk RF"
    assert (run.status, run.error) == ("failed", "could not undo it")


def test_scenario_071_cancel_without_a_request(engine):
    @workflow("w")
    def w(ctx):
        return ctx.cancel()

    with pytest.raises(InvalidTransitionError, match="without a durable cancellation request"):
        engine.start(w, run_id="r")
    assert names(engine, "r") == "C S"


def test_scenario_072_fail_and_timeout_without_a_request(engine):
    @workflow("fails")
    def fails(ctx):
        return ctx.fail("no vendor")

    @workflow("late")
    def late(ctx):
        return ctx.timeout(DEADLINE)

    run = engine.snapshot(engine.start(fails, run_id="f"))
    assert names(engine, "f") == "C S RF"
    assert (run.status, run.error, run.terminal_outcome.type) == ("failed", "no vendor", "failed")
    run = engine.snapshot(engine.start(late, run_id="t"))
    assert names(engine, "t") == "C S RT"
    assert (run.status, run.error) == ("failed", "The run passed its deadline 2031-06-01T00:00:00Z.")


def test_scenario_073_force_cancel(engine, tidy, cleanup, clock):
    engine.start(tidy, clock.now() + HOUR, run_id="waiting")
    assert engine.force_cancel("waiting", "enough", actor="ann") is True
    assert names(engine, "waiting") == "C S wc RX"
    run = engine.snapshot("waiting")
    assert (run.status, run.error, run.terminal_outcome.reason) == ("cancelled", "enough", "enough")
    assert run.waits["w"].status == "cancelled"
    assert engine.store.row("waiting").wake_at is None

    imported(engine, "pending", workflow="tidy")
    assert engine.snapshot("pending").status == "pending"
    assert engine.cancel("pending") is True
    assert names(engine, "pending") == "C RX"

    for run_id in ("waiting", "pending"):
        assert engine.force_cancel(run_id, "again") is False
        assert engine.drive(run_id).status == "cancelled"
    assert names(engine, "waiting") == "C S wc RX"
    assert names(engine, "pending") == "C RX"
    assert cleanup.calls == []


def test_a_pending_run_is_started_by_the_drive(engine):
    @workflow("w")
    def w(ctx):
        return ctx.complete()

    imported(engine, "r")
    assert engine.drive("r").status == "completed"
    assert names(engine, "r") == "C S RC"


def test_a_pending_run_that_is_asked_to_stop_is_not_started(engine):
    @workflow("w")
    def w(ctx):
        return ctx.cancel() if ctx.cancellation_request else ctx.complete()

    imported(engine, "r")
    assert engine.request_cancellation("r").status == "cancelled"
    assert names(engine, "r") == "C CR RX"


def test_scenario_073_force_cancel_needs_no_build(engine, tidy, clock):
    own = restarted(engine, builds=RuntimeBuildCompatibility("b1"))
    own.start(tidy, clock.now() + HOUR, run_id="r")
    assert restarted(engine, builds=RuntimeBuildCompatibility("b2")).force_cancel("r") is True


def test_scenario_074_timeout_from_outside(engine, tidy, cleanup, clock):
    engine.start(tidy, clock.now() + HOUR, run_id="told")
    engine.start(tidy, clock.now() + HOUR, run_id="untold")
    assert engine.terminate_for_timeout("told", DEADLINE, "too slow") is True
    assert engine.terminate_for_timeout("untold", DEADLINE) is True
    run = engine.snapshot("told")
    assert names(engine, "told") == "C S wc RT"
    assert (run.status, run.error) == ("failed", "too slow")
    outcome = run.terminal_outcome
    assert (outcome.type, outcome.deadline, outcome.reason) == ("timed_out", DEADLINE, "too slow")
    run = engine.snapshot("untold")
    assert run.error == "The run passed its deadline 2031-06-01T00:00:00Z."
    assert run.terminal_outcome.reason is None
    assert cleanup.calls == []


@pytest.mark.parametrize("deadline", [datetime(2031, 6, 1), "2031-06-01", None])
def test_scenario_074_a_deadline_that_is_no_instant(engine, tidy, clock, deadline):
    engine.start(tidy, clock.now() + HOUR, run_id="r")
    with pytest.raises(InvalidTransitionError, match="timeout deadline"):
        engine.terminate_for_timeout("r", deadline)
    assert names(engine, "r") == "C S wc"


def test_scenario_074_host_shutdown(engine, tidy, clock):
    engine.start(tidy, clock.now() + HOUR, run_id="told")
    engine.start(tidy, clock.now() + HOUR, run_id="untold")
    assert engine.terminate_for_host_shutdown("told", "moving house") is True
    assert engine.terminate_for_host_shutdown("untold") is True
    run = engine.snapshot("told")
    assert names(engine, "told") == "C S wc RH"
    assert (run.status, run.error) == ("failed", "moving house")
    assert (run.terminal_outcome.type, run.terminal_outcome.reason) == ("host_shutdown", "moving house")
    assert engine.snapshot("untold").error


def test_scenario_074_another_ending_afterwards_changes_nothing(engine, tidy, clock):
    engine.start(tidy, clock.now() + HOUR, run_id="r")
    engine.terminate_for_host_shutdown("r")
    assert engine.terminate_for_timeout("r", DEADLINE) is False
    assert engine.force_cancel("r") is False
    assert engine.terminate_for_host_shutdown("r") is False
    assert engine.request_cancellation("r").status == "failed"
    assert names(engine, "r") == "C S wc RH"
    for verb in (engine.force_cancel, engine.terminate_for_host_shutdown):
        with pytest.raises(RunNotFoundError):
            verb("nobody")


def test_scenario_075_a_reason_that_is_no_text(engine, tidy, clock):
    engine.start(tidy, clock.now() + HOUR, run_id="r")
    for verb in (engine.force_cancel, engine.request_cancellation, engine.terminate_for_host_shutdown):
        with pytest.raises(InvalidTransitionError, match="reason"):
            verb("r", 5)
    engine.force_cancel("r", "NUL \x00, a surrogate \ud800 and ünïcode")
    assert engine.snapshot("r").terminal_outcome.reason == "NUL \x00, a surrogate \ud800 and ünïcode"
    assert names(engine, "r") == "C S wc RX"


def test_scenario_076_a_wait_of_the_clean_up(engine, clock):
    @workflow("w")
    def w(ctx):
        if not ctx.cancellation_request:
            return ctx.wait_until("w", ctx.input)
        return ctx.cancel() if ctx.wait_completed("grace") else ctx.wait_until("grace", ctx.input)

    at = clock.now() + HOUR
    engine.start(w, at, run_id="r")
    run = engine.request_cancellation("r")
    assert run.status == "cancelling"
    assert names(engine, "r") == "C S wc CR wc"
    assert engine.list_due_waits(at) == [("r", "grace")]
    assert engine.store.row("r").wake_at == at
    assert engine.run_summary()["open_waits"] == 1
    clock.advance(HOUR)
    engine.resume_scheduled_run("r")
    assert names(engine, "r") == "C S wc CR wc wk RX"


def test_scenario_076_an_old_wait_is_resumed_in_vain(engine, clock):
    @workflow("w")
    def w(ctx):
        return ctx.create_hook("cleanup") if ctx.cancellation_request else ctx.wait_until("w", ctx.input)

    engine.start(w, clock.now() + HOUR, run_id="r")
    engine.request_cancellation("r")
    assert engine.resume_wait("r", "w") is False
    assert names(engine, "r") == "C S wc CR hc"


@pytest.mark.parametrize(
    "store", [pytest.param("django", marks=pytest.mark.django_db(transaction=True))], indirect=True
)
def test_endings_that_race_leave_one(store, tidy, clock):
    engine = engine_on(store)
    engine.start(tidy, clock.now() + HOUR, run_id="r")
    barrier = threading.Barrier(4, timeout=PATIENCE)

    def act(verb):
        barrier.wait()
        return verb()

    found = Crowd(
        lambda: act(lambda: engine_on(store).force_cancel("r")),
        lambda: act(lambda: engine_on(store).terminate_for_timeout("r", DEADLINE)),
        lambda: act(lambda: engine_on(store).terminate_for_host_shutdown("r")),
        lambda: act(lambda: engine_on(store).force_cancel("r", "another")),
    ).join()
    assert sorted(found) == [False, False, False, True]
    assert len(engine.history("r")) == 4


def test_what_a_run_that_has_ended_still_takes(engine, tidy, clock):
    engine.start(tidy, clock.now() + HOUR, run_id="r")
    engine.force_cancel("r")
    assert engine.resume_wait("r", "w") is False
    assert engine.resume_scheduled_run("r") == []
    with pytest.raises(RunTerminalError):
        engine.record_progress("r", WorkflowProgress("p", 1))
    assert names(engine, "r") == "C S wc RX"
