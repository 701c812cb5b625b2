"""Scenarios 11 to 23: steps and their retries."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from flow_app import RetryPolicy, WorkflowProgress, step, workflow
from flow_app.core import events as ev
from flow_app.core.payload import NULL
from flow_app.core.policy import OnExhausted
from flow_app.errors import InvalidTransitionError, StepNotRegisteredError
from tests.engine.scenarios.support import imported, names, numbered, restarted, told

TWO_MINUTES = timedelta(minutes=2)


@pytest.fixture
def flaky():
    """A step that fails as often as told, and what it was called with."""
    calls = []

    @step("flaky")
    def flaky(ctx, value):
        calls.append((ctx.attempt, value, ctx.idempotency_key))
        if len(calls) <= flaky.failures:
            raise ValueError(f"failure {len(calls)}")
        return "ok"

    flaky.calls = calls
    flaky.failures = 1
    return flaky


def one_step(definition, retry=None):
    @workflow("w")
    def w(ctx):
        if ctx.step_completed("s"):
            return ctx.complete(ctx.step_output("s"))
        return ctx.schedule_step("s", definition, ctx.input, retry=retry)

    return w


def test_scenario_011_one_failure_and_no_delay(engine, flaky):
    run_id = engine.start(one_step(flaky, RetryPolicy.fixed(2)), 5, run_id="r")

    assert numbered(engine, run_id) == "C S sc ss1 sr1 ss2 sk RC"
    retrying = engine.history(run_id)[4]
    assert retrying.data["retry_after"] is None
    assert retrying.data["error"] == "ValueError: failure 1"
    assert engine.snapshot(run_id).steps["s"].attempt == 2
    assert flaky.calls == [(1, 5, "r/s"), (2, 5, "r/s")]


def test_scenario_011_the_default_is_three_attempts_at_once(engine, flaky):
    flaky.failures = 3
    run_id = engine.start(one_step(flaky))

    assert numbered(engine, run_id) == "C S sc ss1 sr1 ss2 sr2 ss3 sf3 RE3"
    run = engine.snapshot(run_id)
    assert run.status == "failed"
    assert run.error == "ValueError: failure 3"
    outcome = run.terminal_outcome
    assert (outcome.type, outcome.step_id, outcome.attempt) == ("retry_exhausted", "s", 3)


def test_scenario_011_the_steps_own_policy_holds_and_the_commands_wins(engine):
    @step("own", retry=RetryPolicy.none())
    def own():
        raise ValueError("no")

    @workflow("defaulted")
    def defaulted(ctx):
        return ctx.schedule_step("s", "own")

    @workflow("stated")
    def stated(ctx):
        return ctx.schedule_step("s", own, retry=RetryPolicy.fixed(2))

    assert numbered(engine, engine.start(defaulted)) == "C S sc ss1 sf1 RE1"
    assert numbered(engine, engine.start(stated)) == "C S sc ss1 sr1 ss2 sf2 RE2"


def test_scenario_011_a_default_changed_by_a_deploy_does_not_disturb_a_replay(engine, flaky, clock):
    run_id = engine.start(one_step(flaky, RetryPolicy.fixed(2, TWO_MINUTES)), run_id="r")
    one_step(flaky)  # now without a policy of its own
    flaky.retry = RetryPolicy.none()
    clock.advance(TWO_MINUTES)
    engine.resume_scheduled_run(run_id)
    assert numbered(engine, run_id) == "C S sc ss1 sr1 ss2 sk RC"


def test_scenario_013_the_workflow_handles_a_failure(engine):
    @step("primary", retry=RetryPolicy.none().continue_workflow_on_failure())
    def primary():
        raise ValueError("primary is down")

    @step("fallback")
    def fallback(error):
        return f"instead of: {error}"

    @workflow("w")
    def w(ctx):
        if ctx.step_completed("fallback"):
            return ctx.complete(ctx.step_output("fallback"))
        error = ctx.step_failed("primary")
        if error is not None:
            return ctx.schedule_step("fallback", fallback, error)
        return ctx.schedule_step("primary", primary)

    run_id = engine.start(w)
    assert told(engine, run_id)[2:] == [
        "sc:primary", "ss:primary", "sf:primary", "sc:fallback", "ss:fallback", "sk:fallback", "RC",
    ]  # fmt: skip
    run = engine.snapshot(run_id)
    assert run.status == "completed"
    assert run.output == "instead of: ValueError: primary is down"
    assert run.steps["primary"].status == "failed"


def test_scenario_014_the_same_failed_step_again(engine):
    calls = []

    @step("s", retry=RetryPolicy.none().continue_workflow_on_failure())
    def s():
        calls.append("step")
        raise ValueError("no")

    @workflow("w")
    def w(ctx):
        calls.append("workflow")
        return ctx.schedule_step("s", s)

    with pytest.raises(InvalidTransitionError, match="already failed"):
        engine.start(w, run_id="r")
    assert calls == ["workflow", "step", "workflow"]
    assert names(engine, "r") == "C S sc ss sf"


def test_scenario_014_the_same_completed_step_again(engine, flaky):
    flaky.failures = 0

    @workflow("w")
    def w(ctx):
        return ctx.schedule_step("s", flaky)

    with pytest.raises(InvalidTransitionError, match="already completed"):
        engine.start(w, run_id="r")
    assert len(flaky.calls) == 1


def test_scenario_015_a_delayed_retry_suspends(engine, flaky, clock):
    run_id = engine.start(one_step(flaky, RetryPolicy.fixed(2, TWO_MINUTES)))

    assert numbered(engine, run_id) == "C S sc ss1 sr1"
    run = engine.snapshot(run_id)
    assert run.status == "suspended"
    due = clock.now() + TWO_MINUTES
    assert run.steps["s"].retry_after == due
    assert engine.list_due_retries() == []
    assert engine.list_due_retries(due) == [(run_id, "s")]
    assert engine.store.row(run_id).wake_at == due

    engine.drive(run_id)  # too early: nothing happens
    clock.advance(TWO_MINUTES - timedelta(microseconds=1))
    engine.resume_scheduled_run(run_id)
    assert numbered(engine, run_id) == "C S sc ss1 sr1"


def test_scenario_016_the_due_retry_is_resumed(engine, flaky, clock):
    run_id = engine.start(one_step(flaky, RetryPolicy.fixed(2, TWO_MINUTES)))

    assert engine.resume_due_retries(clock.now() + TWO_MINUTES) == [(run_id, "s")]
    assert numbered(engine, run_id) == "C S sc ss1 sr1 ss2 sk RC"
    assert engine.snapshot(run_id).steps["s"].retry_after is None
    assert engine.resume_due_retries(clock.now() + TWO_MINUTES) == []


def test_scenario_016_a_worker_brings_it_in_at_its_time(engine, flaky, clock):
    run_id = engine.start(one_step(flaky, RetryPolicy.fixed(2, TWO_MINUTES)))
    clock.advance(TWO_MINUTES)

    assert [(item.kind, item.subject_id) for item in engine.resume_scheduled_run(run_id)] == [("retry", "s")]
    assert numbered(engine, run_id) == "C S sc ss1 sr1 ss2 sk RC"
    assert engine.resume_scheduled_run(run_id) == []


def test_scenario_017_the_delay_counts_from_the_failure(engine, clock):
    @step("slow", retry=RetryPolicy.fixed(2, timedelta(milliseconds=100)))
    def slow():
        clock.advance(timedelta(milliseconds=25))
        raise ValueError("late")

    started = clock.now()
    run_id = engine.start(one_step(slow))
    retrying = engine.history(run_id)[-1]
    assert retrying.data["retry_after"] == started + timedelta(milliseconds=125)
    assert retrying.data["retry_after"] > retrying.recorded_at


def test_scenario_019_the_policy_as_json():
    assert RetryPolicy().to_tree() == {"max_attempts": 3, "delay_ms": 0}
    handled = RetryPolicy.fixed(2, timedelta(seconds=1)).continue_workflow_on_failure()
    assert handled.to_tree() == {"max_attempts": 2, "delay_ms": 1000, "on_exhausted": "continue_workflow"}
    for policy in (RetryPolicy(), RetryPolicy.none(), handled):
        assert RetryPolicy.from_tree(policy.to_tree()) == policy
    assert RetryPolicy.from_tree({"max_attempts": 1, "delay_ms": 0}).on_exhausted is OnExhausted.FAIL_RUN
    assert RetryPolicy(max_attempts=0).attempts == 1


#: From the frozen 2030, the first delay that ends after the year 9999.
_TOO_LATE = (datetime.max.replace(tzinfo=UTC) - datetime(2030, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1) + 1


@pytest.mark.parametrize("delay_ms", [2**64 - 1, 10_000 * 366 * 86_400_000, _TOO_LATE])
def test_scenario_020_a_delay_no_calendar_holds(engine, flaky, delay_ms):
    with pytest.raises(InvalidTransitionError, match=str(delay_ms)):
        engine.start(one_step(flaky, RetryPolicy(2, delay_ms)), run_id="r")
    assert names(engine, "r") == "C S"
    assert flaky.calls == []


def test_scenario_020_a_member_of_a_batch(engine, flaky):
    @workflow("w")
    def w(ctx):
        return ctx.schedule_steps(
            [ctx.step("a", flaky), ctx.step("b", flaky, retry=RetryPolicy(2, _TOO_LATE))],
        )

    with pytest.raises(InvalidTransitionError, match="delay"):
        engine.start(w, run_id="r")
    assert names(engine, "r") == "C S"
    assert flaky.calls == []


def test_scenario_020_a_delay_that_just_fits(engine, flaky, clock):
    run_id = engine.start(one_step(flaky, RetryPolicy(2, _TOO_LATE - 1)))
    assert numbered(engine, run_id) == "C S sc ss1 sr1"
    assert engine.snapshot(run_id).steps["s"].retry_after.year == 9999


def test_scenario_020_a_delay_that_fits_no_more_once_the_step_has_failed(engine, clock):
    """It was representable when it was declared; the failure is recorded all the same."""

    @step("slow", retry=RetryPolicy(2, _TOO_LATE - 1))
    def slow():
        clock.advance(timedelta(seconds=1))
        raise ValueError("late")

    run_id = engine.start(one_step(slow))
    assert numbered(engine, run_id) == "C S sc ss1 sr1"
    assert engine.snapshot(run_id).steps["s"].retry_after == datetime.max.replace(tzinfo=UTC)


def test_scenario_022_progress_while_a_step_runs(engine):
    """The outcome goes behind what came meanwhile; the body is not run again."""
    calls = []

    @step("s")
    def s(ctx):
        calls.append(ctx.attempt)
        engine.record_progress(ctx.run_id, WorkflowProgress(f"p{len(calls)}", 1))
        return len(calls)

    run_id = engine.start(one_step(s))
    assert numbered(engine, run_id) == "C S sc ss1 PG sk RC"
    assert calls == [1]
    assert engine.snapshot(run_id).output == 1


def test_scenario_022_a_writer_that_never_stops(engine):
    """Between any two appends of the drive somebody writes: each outcome still counts, and each body runs once."""
    calls = []

    @step("s")
    def s(ctx):
        calls.append(ctx.step_id)
        engine.record_progress(ctx.run_id, WorkflowProgress(f"in {ctx.step_id}", 1))
        return 1

    asked = []

    @workflow("w")
    def w(ctx):
        asked.append(1)
        if len(asked) % 2:
            engine.record_progress(ctx.run_id, WorkflowProgress(f"asked {len(asked)}", 1))
        for step_id in ("a", "b", "c"):
            if not ctx.step_completed(step_id):
                return ctx.schedule_step(step_id, s)
        return ctx.complete()

    run_id = engine.start(w)
    assert engine.snapshot(run_id).status == "completed"
    assert calls == ["a", "b", "c"]
    history = names(engine, run_id)
    assert [history.split().count(name) for name in ("sc", "ss", "sk", "RC")] == [3, 3, 3, 1]


def test_scenario_022_a_run_ended_while_its_step_runs(engine):
    """The late outcome is dropped, the drive stops, and nobody is told of an error."""

    @step("s")
    def s(ctx):
        engine.force_cancel(ctx.run_id, "enough")
        return 1

    run_id = engine.start(one_step(s), run_id="r")
    assert numbered(engine, run_id) == "C S sc ss1 RX"
    run = engine.snapshot(run_id)
    assert run.status == "cancelled"
    assert run.steps["s"].status == "cancelled"
    assert run.step_output("s") is None


@pytest.mark.parametrize("value", ["three", None, [1]])
def test_scenario_023_an_input_of_another_type_is_a_failed_attempt(engine, value):
    @step("s", retry=RetryPolicy.none())
    def s(amount):
        return amount + 1

    run_id = engine.start(one_step(s), value)
    run = engine.snapshot(run_id)
    assert run.terminal_outcome.type == "retry_exhausted"
    assert run.error.startswith("TypeError: ")


def test_scenario_023_reads_of_unknown_ids(engine, flaky):
    run_id = engine.start(one_step(flaky))
    run = engine.snapshot(run_id)
    assert run.step_output("nobody") is None
    assert run.hook_payload("nobody") is None
    assert run.child_operation("nobody") is None


def test_an_output_that_cannot_be_stored_is_a_failed_attempt(engine):
    @step("s", retry=RetryPolicy.none())
    def s():
        return {"rows": [1, object()]}

    run_id = engine.start(one_step(s))
    assert numbered(engine, run_id) == "C S sc ss1 sf1 RE1"
    assert "$.rows[1]" in engine.snapshot(run_id).error


def test_a_step_that_was_taken_out_of_the_code_blocks_before_anything_is_written(engine):
    @workflow("w")
    def w(ctx):
        return ctx.schedule_step("s", "gone")

    with pytest.raises(StepNotRegisteredError):
        engine.start(w, run_id="r")
    assert engine.store.row("r").blocked_code == "step_not_registered"


def test_a_process_that_is_stopped_in_a_step_delivers_the_attempt_again(engine):
    calls = []

    @step("s")
    def s(ctx):
        calls.append(ctx.attempt)
        if len(calls) == 1:
            raise SystemExit
        return "done"

    with pytest.raises(SystemExit):
        engine.start(one_step(s), run_id="r")
    assert numbered(engine, "r") == "C S sc ss1"
    assert restarted(engine).drive("r").output == "done"
    assert numbered(engine, "r") == "C S sc ss1 sk RC"
    assert calls == [1, 1]


def test_a_worker_lost_again_and_again_ends_the_attempt(engine, clock):
    """After MAX_DELIVERIES expired leases the attempt counts as failed, under the step's own policy."""
    calls = []

    @step("deadly", retry=RetryPolicy.fixed(2))
    def deadly(ctx):
        calls.append(ctx.attempt)
        return "survived"

    one_step(deadly)
    lease = engine.services.options.lease
    imported(engine, "r", ev.RunStarted(), ev.StepCreated("s", "deadly", NULL, RetryPolicy.fixed(2)),
             ev.StepStarted("s", 1))  # fmt: skip
    for lost in range(engine.services.options.max_deliveries + 1):
        assert engine.store.claim("r", lease=lease).lost_leases == lost
        clock.advance(lease)

    engine.drive("r")
    assert numbered(engine, "r") == "C S sc ss1 sr1 ss2 sk RC"
    assert engine.history("r")[4].data["error"] == "worker lost"
    assert calls == [2]
    assert engine.store.row("r").lost_leases == 0
