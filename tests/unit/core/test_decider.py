"""The decider: what each command means in each state, and which checks come first."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

import pytest

from flow_app.core import commands as cmd
from flow_app.core import events as ev
from flow_app.core.decider import PARK, Decision, decide
from flow_app.core.payload import NULL, Payload
from flow_app.core.policy import CancellationRequest, RetryPolicy
from flow_app.errors import InvalidTransitionError, NonDeterministicError, PayloadError
from tests.unit.builders import (
    BEGUN,
    CANCELLING,
    DELAYED,
    HANDLED,
    NOW,
    ONCE,
    RUN,
    TWICE,
    at,
    child,
    completed,
    failed,
    hook,
    progress,
    retrying,
    running,
    state_of,
    step,
    wait,
)
from tests.unit.deciding import ENDLESS, SMALL, TOO_LATE, batch, decided, link, record, refuse, schedule

# --- endings --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("before", [(), (wait(), hook(), *running(), *retrying("b"))], ids=["alone", "with work open"])
def test_a_run_completes_whatever_is_open(before):
    output = Payload.of({"total": 1})
    assert decided(before, cmd.Complete(output)) == Decision((ev.RunCompleted(output),))


def test_scenario_071_completing_is_refused_while_cancelling_and_failing_is_not():
    error = refuse(
        (CANCELLING,), cmd.Complete(NULL), InvalidTransitionError, "complete is not allowed while cancelling"
    )
    assert str(error).startswith(f"Run {RUN!r}: ")
    assert decided((CANCELLING,), cmd.Fail("boom")) == Decision((ev.RunFailed("boom"),))


def test_scenario_071_cancel_needs_a_request():
    refuse((), cmd.Cancel(), InvalidTransitionError, "without a durable cancellation request")


@pytest.mark.parametrize("reason", ["changed my mind", "", None])
def test_cancel_takes_the_reason_of_the_request(reason):
    request = ev.RunCancellationRequested(CancellationRequest(reason))
    assert decided((request,), cmd.Cancel()) == Decision((ev.RunCancelled(reason),))


@pytest.mark.parametrize("before", [(), (CANCELLING,)], ids=["running", "cancelling"])
def test_scenario_067_timeout_is_recorded_without_a_look_at_the_clock(before):
    local = datetime(2020, 1, 1, 2, tzinfo=timezone(timedelta(hours=2)))
    decision = decided(before, cmd.Timeout(local, "slow"))
    assert decision == Decision((ev.RunTimedOut(local, "slow"),))
    (event,) = decision.events
    assert isinstance(event, ev.RunTimedOut)
    assert event.deadline.utcoffset() == timedelta(0)


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        (cmd.Fail(None), "fail needs an error text"),  # type: ignore[arg-type]
        (cmd.Fail(ValueError("x")), "error must be a string, not ValueError"),  # type: ignore[arg-type]
        (cmd.Timeout(datetime(2026, 1, 1)), "timeout deadline is the naive datetime"),
        (cmd.Timeout("2026-01-01T00:00:00Z"), "timeout deadline must be an aware datetime"),  # type: ignore[arg-type]
        (cmd.Timeout(NOW, 5), "reason must be a string"),  # type: ignore[arg-type]
        (None, "returned NoneType, not a command"),
        ("complete", "returned str, not a command"),
        ({"type": "complete"}, "returned dict, not a command"),
    ],
    ids=repr,
)
def test_an_ending_of_another_shape_is_refused(command, reason):
    refuse((), command, InvalidTransitionError, reason)


# --- progress and children ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("before", [(), (CANCELLING,), (wait(), *running())], ids=["running", "cancelling", "busy"])
def test_scenario_079_new_progress_and_children_are_recorded(before):
    assert decided(before, record(details={"b": 1, "a": 2})) == Decision((progress("p", 1, details={"a": 2, "b": 1}),))
    assert decided(before, link()) == Decision((child("c", "job-1"),))


def test_a_child_that_names_a_run_is_for_the_store_to_check():
    assert decided((), link(flow_run_id="run-2")) == Decision((child("c", "job-1", flow_run_id="run-2"),), guarded=True)


@pytest.mark.parametrize(
    ("before", "command"),
    [((progress("p", 1, details={"x": 1}),), record(details={"x": 1})), ((child(),), link())],
    ids=["progress", "child"],
)
def test_scenario_079_the_same_again_makes_no_forward_progress(before, command):
    refuse(before, command, InvalidTransitionError, "no forward progress")


@pytest.mark.parametrize(
    ("before", "command", "shown"),
    [
        (
            (progress("p", 1),),
            record(2),
            'changed: history={"completed":1,"progress_id":"p"}; replay={"completed":2,"progress_id":"p"}',
        ),
        ((progress("p", 1, details=1),), record(details=1.0), '"details":1,'),
        ((progress("p", 1, details=1),), record(details=True), '"details":true'),
        ((progress("p", 1, total=2),), record(), '"total":2'),
        ((child(),), link("job-2"), '"operation_id":"job-2"'),
        ((child(),), link(flow_run_id="run-2"), '"flow_run_id":"run-2"'),
    ],
    ids=["completed", "float", "bool", "total", "operation", "run"],
)
def test_scenario_079_changed_content_is_not_deterministic_and_shown(before, command, shown):
    error = refuse(before, command, NonDeterministicError, "changed: history=.*; replay=")
    assert shown in str(error)


def test_scenario_080_validity_comes_before_comparison():
    refuse((progress("p", 1),), record(3, total=2), InvalidTransitionError, "more than its total")
    refuse((progress("p", 1),), record(details={1}), PayloadError, "progress details")
    refuse((child(),), link(""), InvalidTransitionError, "operation id is blank")


# --- one step -------------------------------------------------------------------------------------------------------


def test_a_new_step_is_created_and_started_in_one_decision():
    command = schedule("a", value={"n": 1}, retry=TWICE)
    assert decided((), command) == Decision((step("a", TWICE, {"n": 1}), ev.StepStarted("a", 1)), run=("a",))


def test_a_stated_policy_wins_over_the_default_of_the_step():
    default = RetryPolicy(5, 10)
    stated = cmd.ScheduleStep("a", "charge", NULL, ONCE, default)
    unstated = cmd.ScheduleStep("a", "charge", NULL, None, default)
    assert decided((), stated).events[0] == step("a", ONCE)
    assert decided((), unstated).events[0] == step("a", default)
    assert decided((), cmd.ScheduleStep("a", "charge", NULL)).events[0] == step("a", RetryPolicy(3, 0))


@pytest.mark.parametrize(
    ("before", "events", "run"),
    [
        ((step("a"),), (ev.StepStarted("a", 1),), ("a",)),
        (running("a"), (), ("a",)),
        (running("a", TWICE, attempt=2), (), ("a",)),
        ((*running("a", TWICE), ev.StepRetrying("a", 1, "boom", None)), (ev.StepStarted("a", 2),), ("a",)),
        (retrying("a", 0), (ev.StepStarted("a", 2),), ("a",)),
        (retrying("a", -1), (ev.StepStarted("a", 2),), ("a",)),
        (retrying("a", 0.000001), (), ()),
    ],
    ids=["pending", "running", "running again", "retry at once", "retry due now", "retry overdue", "retry not due"],
)
@pytest.mark.parametrize("as_batch", [False, True], ids=["step", "batch"])
def test_a_step_that_exists_is_started_redelivered_or_left(before, events, run, as_batch):
    recorded = before[0]
    assert isinstance(recorded, ev.StepCreated)
    command = schedule("a", retry=recorded.retry)
    decision = decided(before, batch(command) if as_batch else command)
    assert decision == Decision(events, run)
    assert decision.parks is (decision == PARK)


@pytest.mark.parametrize(
    "before",
    [completed("a"), failed("a"), failed("a", HANDLED), (step("a"), CANCELLING), (*running("a"), CANCELLING)],
    ids=["completed", "failed", "handled", "cancelled", "cancelled while running"],
)
def test_scenario_014_a_settled_step_makes_no_forward_progress(before):
    recorded = before[0]
    assert isinstance(recorded, ev.StepCreated)
    command = schedule("a", retry=recorded.retry)
    refuse(before, command, InvalidTransitionError, "step 'a' is already (completed|failed|cancelled)")
    refuse(before, batch(command), InvalidTransitionError, r"every step of the batch \['a'\] has settled")


@pytest.mark.parametrize(
    ("command", "reason", "shown"),
    [
        (schedule(name="refund", value=2, retry=DELAYED), "name of step 'a'", 'history="charge"; replay="refund"'),
        (schedule(value={"n": 2}, retry=DELAYED), "input of step 'a'", 'history={"n":1}; replay={"n":2}'),
        (schedule(value={"n": 1.0}, retry=DELAYED), "input of step 'a'", 'history={"n":1}; replay={"n":1.0}'),
        (schedule(value={"n": True}), "input of step 'a'", 'history={"n":1}; replay={"n":true}'),
        (
            schedule(value={"n": 1}, retry=RetryPolicy(3, 60_000)),
            "retry policy of step 'a'",
            'history={"delay_ms":60000,"max_attempts":2}; replay={"delay_ms":60000,"max_attempts":3}',
        ),
        (schedule(value={"n": 1}, retry=DELAYED.continue_workflow_on_failure()), "retry policy", "continue_workflow"),
    ],
    ids=["name", "input", "float", "bool", "attempts", "action"],
)
@pytest.mark.parametrize(
    "after",
    [(), (ev.StepStarted("a", 1),), (ev.StepStarted("a", 1), ev.StepCompleted("a", NULL)), (CANCELLING,)],
    ids=["pending", "running", "completed", "cancelled"],
)
def test_scenario_046_name_then_input_then_policy_are_compared_before_the_status(command, reason, shown, after):
    before = (step("a", DELAYED, {"n": 1}), *after)
    error = refuse(before, command, NonDeterministicError, reason)
    assert shown in str(error)
    refuse(before, batch(command), NonDeterministicError, reason)


def test_the_order_of_keys_is_no_drift():
    before = (step("a", ONCE, {"a": 1, "b": [{"x": 1, "y": 2}]}),)
    again = schedule(value={"b": [{"y": 2, "x": 1}], "a": 1})
    assert decided(before, again).run == ("a",)


def test_an_unstated_policy_is_no_drift_whatever_the_default_has_become():
    command = cmd.ScheduleStep("a", "charge", NULL, None, RetryPolicy(9, 9))
    assert decided((step("a", TWICE),), command) == Decision((ev.StepStarted("a", 1),), ("a",))


@pytest.mark.parametrize("as_batch", [False, True], ids=["step", "batch"])
@pytest.mark.parametrize(
    ("command", "reason"),
    [
        (schedule(""), "step id is blank"),
        (schedule("  "), "step id is blank"),
        (schedule("a\n"), "control character"),
        (schedule("x" * 201), "more than 200"),
        (schedule(7), "step id must be a string"),  # type: ignore[arg-type]
        (schedule(name=""), "step name is blank"),
        (schedule(name="\x00"), "control character"),
        (schedule(retry=ENDLESS), "18446744073709551615 ms ends after the year 9999"),
        (schedule(retry=TOO_LATE), "ends after the year 9999"),
        (cmd.ScheduleStep("a", "charge", NULL, None, ENDLESS), "ends after the year 9999"),
    ],
    ids=["empty", "blank", "control", "long", "number", "name", "NUL", "endless", "too late", "default"],
)
def test_scenario_020_a_bad_new_step_is_refused_before_anything_is_written(command, reason, as_batch):
    refuse((), batch(schedule("ok"), command) if as_batch else command, InvalidTransitionError, reason)


@pytest.mark.parametrize("as_batch", [False, True], ids=["step", "batch"])
def test_an_input_over_the_limit_is_refused_when_it_is_new(as_batch):
    command = schedule(value="x" * 20)
    command = batch(command) if as_batch else command
    refuse((), command, PayloadError, "step input", SMALL)
    state = state_of(*BEGUN, step("a", ONCE, "x" * 20))
    assert decide(state, command, now=NOW, limits=SMALL).run == ("a",)


# --- batches --------------------------------------------------------------------------------------------------------


def test_a_new_batch_is_created_first_and_then_started_in_the_order_of_the_command():
    decision = decided((), batch(schedule("b"), schedule("a", value=1), schedule("c", retry=DELAYED)))
    assert decision.events == (
        step("b"),
        step("a", ONCE, 1),
        step("c", DELAYED),
        ev.StepStarted("b", 1),
        ev.StepStarted("a", 1),
        ev.StepStarted("c", 1),
    )
    assert decision.run == ("b", "a", "c")


def test_a_repeated_batch_goes_on_from_wherever_it_stands():
    before = (
        *completed("done"),
        *failed("handled", HANDLED),
        *running("running"),
        *retrying("later", 60),
        *retrying("due", 0),
        step("pending"),
    )
    command = batch(
        schedule("new"),
        schedule("later", retry=DELAYED),
        schedule("running"),
        schedule("done"),
        schedule("due", retry=DELAYED),
        schedule("handled", retry=HANDLED),
        schedule("pending"),
    )
    decision = decided(before, command)
    assert decision.events == (
        step("new"),
        ev.StepStarted("new", 1),
        ev.StepStarted("due", 2),
        ev.StepStarted("pending", 1),
    )
    assert decision.run == ("new", "running", "due", "pending")


def test_a_batch_whose_rest_is_not_due_parks():
    before = (*completed("done"), *retrying("later", 60))
    command = batch(schedule("done"), schedule("later", retry=DELAYED))
    assert decided(before, command) == PARK
    assert decided(before, command, now=at(60)) == Decision((ev.StepStarted("later", 2),), ("later",))


def test_a_batch_while_cancelling_skips_what_was_cancelled():
    before = (step("old"), CANCELLING)
    decision = decided(before, batch(schedule("old"), schedule("refund")))
    assert decision.run == ("refund",)


@pytest.mark.parametrize(
    ("before", "command", "error", "reason"),
    [
        ((), batch(), InvalidTransitionError, "at least one step"),
        ((), batch(schedule("a"), schedule("a")), InvalidTransitionError, "names step 'a' twice"),
        ((), batch(schedule("a"), schedule("a", value=2)), InvalidTransitionError, "twice"),
        # an id's form before what history says of the others
        ((step("a"),), batch(schedule("a", value=2), schedule(" ")), InvalidTransitionError, "blank"),
        ((step("a"),), batch(schedule("a", value=2), schedule("b"), schedule("b")), InvalidTransitionError, "twice"),
        # drift before a settled batch and before the policies of new members
        ((*completed("a"), *completed("b")), batch(schedule("a"), schedule("b", value=2)), NonDeterministicError, "b"),
        ((step("b"),), batch(schedule("a", retry=ENDLESS), schedule("b", value=2)), NonDeterministicError, "'b'"),
        ((step("b"),), batch(schedule("a", name=""), schedule("b", name="x")), NonDeterministicError, "'b'"),
        ((*completed("a"), *completed("b")), batch(schedule("b"), schedule("a")), InvalidTransitionError, "settled"),
        # one bad member spoils the batch
        ((step("b"),), batch(schedule("b"), schedule("a", retry=ENDLESS)), InvalidTransitionError, "year 9999"),
    ],
    ids=[
        "empty", "twice", "twice otherwise", "blank before drift", "twice before drift", "drift before settled",
        "drift before policy", "drift before name", "settled", "policy",
    ],
)  # fmt: skip
def test_scenario_034_a_batch_is_checked_whole_before_anything_is_decided(before, command, error, reason):
    refuse(before, command, error, reason)
