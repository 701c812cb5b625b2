"""The decider: what each command means in each state, and which checks come first."""

from __future__ import annotations

import enum
from datetime import datetime, timedelta, timezone

import pytest

from flow_app.core import commands as cmd
from flow_app.core import events as ev
from flow_app.core.decider import (
    PARK,
    Decision,
    cancellation_conflict,
    decide,
    due_events,
    expired_hooks,
    failure,
    repair_exhaustion,
)
from flow_app.core.payload import DEFAULT_LIMITS, NULL, Limits, Payload
from flow_app.core.policy import CancellationRequest, ChildOperationReference, RetryPolicy, WorkflowProgress
from flow_app.core.state import RunState
from flow_app.core.tokens import digest
from flow_app.errors import FlowError, InvalidTransitionError, NonDeterministicError, PayloadError
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
    extend,
    failed,
    hook,
    progress,
    retrying,
    running,
    state_of,
    step,
    wait,
)

ENDLESS = RetryPolicy(2, 2**64 - 1)
TOO_LATE = RetryPolicy(2, 8000 * 366 * 86_400_000)  # a duration like any other, but it ends past the year 9999
SMALL = Limits(max_bytes=20)


def schedule(step_id: str = "a", name: str = "charge", value: object = None, retry: RetryPolicy | None = ONCE):
    return cmd.ScheduleStep(step_id, name, Payload.of(value), retry)


def batch(*steps: cmd.ScheduleStep) -> cmd.ScheduleSteps:
    return cmd.ScheduleSteps(steps)


def decided(before: tuple[ev.Event, ...], command: cmd.Command, *, now: datetime = NOW) -> Decision:
    """The decision in the state after these; its events are checked to fold."""
    state = state_of(*BEGUN, *before)
    untouched = state.snapshot()
    decision = decide(state, command, now=now)
    assert state.snapshot() == untouched, "deciding changes nothing"
    extend(state, decision.events)
    return decision


def refuse(
    before: tuple[ev.Event, ...],
    command: cmd.Command,
    error: type[FlowError],
    reason: str,
    limits: Limits = DEFAULT_LIMITS,
) -> FlowError:
    state = state_of(*BEGUN, *before)
    untouched = state.snapshot()
    with pytest.raises(error, match=reason) as caught:
        decide(state, command, now=NOW, limits=limits)
    assert type(caught.value) is error
    assert state.snapshot() == untouched
    return caught.value


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


def record(completed: int = 1, **more: object) -> cmd.RecordProgress:
    return cmd.RecordProgress(WorkflowProgress("p", completed, **more))  # type: ignore[arg-type]


def link(operation_id: str = "job-1", **more: object) -> cmd.LinkChildOperation:
    return cmd.LinkChildOperation(ChildOperationReference("c", "export", operation_id, **more))  # type: ignore[arg-type]


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


# --- waits ----------------------------------------------------------------------------------------------------------


def wait_until(seconds: float = 60, wait_id: str = "w") -> cmd.WaitUntil:
    return cmd.WaitUntil(wait_id, at(seconds))


@pytest.mark.parametrize("seconds", [60, 0, -60, -(10**9)])
def test_scenario_037_a_new_wait_is_created_even_when_its_time_has_passed(seconds):
    assert decided((), wait_until(seconds)) == Decision((wait("w", seconds),))


def test_the_same_open_wait_parks_even_when_it_is_due():
    assert decided((wait("w", 60),), wait_until(60)) == PARK
    assert decided((wait("w", 60),), wait_until(60), now=at(61)) == PARK


def test_a_wait_is_compared_as_an_instant():
    local = at(60).astimezone(timezone(timedelta(hours=5)))
    assert decided((wait("w", 60),), cmd.WaitUntil("w", local)) == PARK


@pytest.mark.parametrize("after", [(), (ev.WaitCompleted("w"),), (CANCELLING,)], ids=["open", "completed", "cancelled"])
def test_scenario_044_another_time_is_not_deterministic_and_both_are_shown(after):
    error = refuse((wait("w", 60), *after), wait_until(61), NonDeterministicError, "time of wait 'w'")
    assert 'history="2026-05-04T12:01:00Z"; replay="2026-05-04T12:01:01Z"' in str(error)


def test_scenario_043_a_completed_wait_again_is_refused_at_once():
    refuse(
        (wait(), ev.WaitCompleted("w")), wait_until(), InvalidTransitionError, "already completed.* no forward progress"
    )


def test_scenario_070_a_cancelled_wait_or_hook_needs_a_new_id():
    refuse(
        (wait(), CANCELLING), wait_until(), InvalidTransitionError, "wait 'w' was cancelled; clean-up must use a new id"
    )
    refuse((hook(), CANCELLING), create(), InvalidTransitionError, "hook 'h' was cancelled; clean-up must use a new id")
    assert decided((wait(), hook(), CANCELLING), wait_until(wait_id="w-2")).events == (wait("w-2"),)


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        (cmd.WaitUntil("", NOW), "wait id is blank"),
        (cmd.WaitUntil("w\x00", NOW), "control character"),
        (cmd.WaitUntil(None, NOW), "wait id must be a string"),  # type: ignore[arg-type]
        (cmd.WaitUntil("w", datetime(2026, 1, 1)), "resume_at of wait 'w' is the naive datetime"),
        (cmd.WaitUntil("w", 60), "must be an aware datetime, not int"),  # type: ignore[arg-type]
        (
            cmd.WaitUntil("w", datetime.max.replace(tzinfo=timezone(-timedelta(hours=1)))),
            "outside the years 1 to 9999",
        ),
    ],
    ids=["blank", "control", "none", "naive", "number", "past 9999"],
)
def test_a_bad_wait_is_refused(command, reason):
    refuse((), command, InvalidTransitionError, reason)


# --- hooks ----------------------------------------------------------------------------------------------------------


def create(
    token: str = "t0ken", metadata: object = None, expires: float | None = None, hook_id: str = "h"
) -> cmd.CreateHook:
    return cmd.CreateHook(hook_id, token, Payload.of(metadata), None if expires is None else at(expires))


def test_a_new_hook_is_recorded_with_the_digest_of_its_token():
    decision = decided((), create("t0ken", {"kind": "x"}, expires=60))
    expected = ev.HookCreated("h", digest("t0ken"), Payload.of({"kind": "x"}), at(60))
    assert decision == Decision((expected,), guarded=True)
    assert "t0ken" not in repr(decision)


@pytest.mark.parametrize("expires", [None, 60])
def test_the_same_active_hook_parks(expires):
    recorded = hook("h", "t0ken", expires, Payload.of({"a": 1, "b": 2}))
    assert decided((recorded,), create("t0ken", {"b": 2, "a": 1}, expires)) == PARK


@pytest.mark.parametrize(
    ("resolution", "status"),
    [(ev.HookReceived("h", NULL), "received"), (ev.HookDisposed("h"), "disposed"), (ev.HookExpired("h"), "expired")],
    ids=["received", "disposed", "expired"],
)
def test_a_resolved_hook_again_is_refused_at_once(resolution, status):
    recorded = hook("h", "t0ken", expires=60)
    refuse((recorded, resolution), create(expires=60), InvalidTransitionError, f"'h' is already {status}")


AFTER_HOOK = [(), (ev.HookReceived("h", NULL),), (ev.HookDisposed("h"),), (CANCELLING,)]


@pytest.mark.parametrize("after", AFTER_HOOK, ids=["active", "received", "disposed", "cancelled"])
def test_scenario_047_another_token_is_not_deterministic_and_neither_is_shown(after):
    before = (hook("h", "old-t0ken", expires=60), *after)
    error = refuse(before, create("new-t0ken", {"other": 1}), NonDeterministicError, "token of hook 'h' changed")
    text = f"{error} {error!r} {error.__dict__}"
    assert "values not shown" in text
    for secret in ("old-t0ken", "new-t0ken", digest("old-t0ken"), digest("new-t0ken"), "sha256"):
        assert secret not in text


@pytest.mark.parametrize("after", AFTER_HOOK, ids=["active", "received", "disposed", "cancelled"])
def test_scenario_047_other_metadata_is_not_deterministic_and_both_are_shown(after):
    before = (hook("h", expires=60, metadata=Payload.of({"n": 1})), *after)
    error = refuse(before, create(metadata={"n": 1.0}), NonDeterministicError, "metadata of hook 'h'")
    assert 'history={"n":1}; replay={"n":1.0}' in str(error)


@pytest.mark.parametrize(
    ("recorded", "replayed", "shown"),
    [
        (60, 61, 'history="2026-05-04T12:01:00Z"; replay="2026-05-04T12:01:01Z"'),
        (60, None, 'history="2026-05-04T12:01:00Z"; replay=null'),
        (None, 60, 'history=null; replay="2026-05-04T12:01:00Z"'),
    ],
)
def test_another_deadline_is_not_deterministic(recorded, replayed, shown):
    error = refuse(
        (hook("h", expires=recorded),), create(expires=replayed), NonDeterministicError, "deadline of hook 'h'"
    )
    assert shown in str(error)


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        (create(hook_id=""), "hook id is blank"),
        (create(hook_id="h\n"), "control character"),
        (create(token=""), "token must be a non-blank string"),
        (create(token=" \t"), "token must be a non-blank string"),
        (create(token=None), "token must be a non-blank string"),  # type: ignore[arg-type]
        (cmd.CreateHook("h", "t0ken", NULL, datetime(2026, 1, 1)), "expires_at of hook 'h' is the naive datetime"),
        (cmd.CreateHook("h", "t0ken", NULL, timedelta(1)), "must be an aware datetime"),  # type: ignore[arg-type]
    ],
    ids=["blank", "control", "no token", "blank token", "null token", "naive", "duration"],
)
def test_a_bad_hook_is_refused_without_its_token(command, reason):
    error = refuse((), command, InvalidTransitionError, reason)
    assert "t0ken" not in str(error)


@pytest.mark.parametrize(
    ("command", "what"),
    [
        (cmd.Complete(Payload.of("x" * 20)), "output"),
        (cmd.CreateHook("h", "t", Payload.of("x" * 20)), "hook metadata"),
        (record(details="x" * 20), "progress details"),
        (record(message="x" * 20), "progress"),
        (link("x" * 20), "child operation"),
        (link(metadata="x" * 20), "child metadata"),
    ],
    ids=["output", "metadata", "details", "progress", "child", "child metadata"],
)
def test_every_payload_is_held_to_the_limit(command, what):
    refuse((), command, PayloadError, f"^{what} cannot be stored", SMALL)


# --- ids of other types ---------------------------------------------------------------------------------------------


class Name(str, enum.Enum):  # noqa: UP042  -- as projects write them
    CHARGE = "charge"


@pytest.mark.parametrize(
    "command",
    [
        cmd.ScheduleStep(Name.CHARGE, Name.CHARGE, NULL, ONCE),
        batch(cmd.ScheduleStep(Name.CHARGE, Name.CHARGE, NULL, ONCE)),
        cmd.WaitUntil(Name.CHARGE, NOW),
        cmd.CreateHook(Name.CHARGE, "t"),
        cmd.RecordProgress(WorkflowProgress(Name.CHARGE, 1)),
        cmd.LinkChildOperation(ChildOperationReference(Name.CHARGE, Name.CHARGE, Name.CHARGE)),
        cmd.Fail(Name.CHARGE),
        cmd.Timeout(NOW, Name.CHARGE),
    ],
    ids=lambda command: command.type,
)
def test_a_text_of_another_type_is_decided_upon_as_its_base(command):
    decision = decide(state_of(*BEGUN), command, now=NOW)
    texts = [getattr(event, name) for event in decision.events for name in event.__slots__]
    assert {type(text) for text in [*texts, *decision.run] if isinstance(text, str)} <= {str}


# --- failures -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("retry", "attempt", "expected"),
    [
        (ONCE, 1, (ev.StepFailed("a", 1, "boom"), ev.RunRetryExhausted("a", 1, "boom"))),
        (RetryPolicy(0), 1, (ev.StepFailed("a", 1, "boom"), ev.RunRetryExhausted("a", 1, "boom"))),
        (HANDLED, 1, (ev.StepFailed("a", 1, "boom"),)),
        (TWICE, 1, (ev.StepRetrying("a", 1, "boom", None),)),
        (TWICE, 2, (ev.StepFailed("a", 2, "boom"), ev.RunRetryExhausted("a", 2, "boom"))),
        (TWICE.continue_workflow_on_failure(), 1, (ev.StepRetrying("a", 1, "boom", None),)),
        (TWICE.continue_workflow_on_failure(), 2, (ev.StepFailed("a", 2, "boom"),)),
        (DELAYED, 1, (ev.StepRetrying("a", 1, "boom", at(60 + 0.025)),)),
    ],
)
def test_a_failed_attempt_is_retried_handed_back_or_ends_the_run(retry, attempt, expected):
    state = state_of(*BEGUN, *running("a", retry, attempt))
    events = failure(state, "a", error="boom", failed_at=at(0.025))
    assert events == expected
    extend(state, events)


def test_scenario_017_a_delay_counts_from_the_failure():
    state = state_of(*BEGUN, *running("a", DELAYED))
    (event,) = failure(state, "a", error="boom", failed_at=at(25))
    assert isinstance(event, ev.StepRetrying)
    assert event.retry_after == at(25 + 60)


@pytest.mark.parametrize("retry", [ONCE, TWICE, DELAYED, HANDLED])
def test_an_attempt_that_ran_at_the_request_is_not_retried_and_does_not_fail_the_run(retry):
    state = state_of(*BEGUN, *running("a", retry), CANCELLING)
    events = failure(state, "a", error="boom", failed_at=NOW)
    assert events == (ev.StepFailed("a", 1, "boom"),)
    extend(state, events)
    assert repair_exhaustion(state) is None


def test_a_delay_that_grew_out_of_the_calendar_while_the_step_ran_still_lets_it_fail():
    delay = datetime.max.replace(tzinfo=NOW.tzinfo) - NOW
    retry = RetryPolicy.fixed(2, delay - timedelta(seconds=1))
    assert decided((), schedule(retry=retry)).run == ("a",)
    state = state_of(*BEGUN, *running("a", retry))
    events = failure(state, "a", error="boom", failed_at=at(3600))
    extend(state, events)
    assert state.steps["a"].status == "pending"


@pytest.mark.parametrize("after", [(), (CANCELLING,)], ids=["running", "cancelling"])
def test_scenario_094_an_exhaustion_that_a_crash_left_out_is_found(after):
    state = state_of(*BEGUN, *running("a", TWICE, 2), ev.StepFailed("a", 2, "boom"), *after)
    event = repair_exhaustion(state)
    assert event == ev.RunRetryExhausted("a", 2, "boom")
    extend(state, [event])
    assert repair_exhaustion(state) is None
    assert state.status == "failed"


@pytest.mark.parametrize(
    "before", [(), failed("a", HANDLED), completed("a"), running("a"), retrying("a")], ids=lambda value: str(len(value))
)
def test_nothing_is_repaired_where_nothing_is_missing(before):
    assert repair_exhaustion(state_of(*BEGUN, *before)) is None


# --- timers ---------------------------------------------------------------------------------------------------------


def test_what_is_due_comes_earliest_first():
    state = state_of(
        *BEGUN, wait("w1", 30), wait("w2", 10), wait("w3", 31), wait("a", 20),
        wait("done", 1), ev.WaitCompleted("done"), hook("h1", "1", 20), hook("h2", "2", 31), hook("h3", "3"),
        hook("h4", "4", 5), ev.HookDisposed("h4"), *retrying("r", 1),
    )  # fmt: skip
    assert due_events(state, at(30)) == (
        ev.WaitCompleted("w2"),
        ev.WaitCompleted("a"),
        ev.HookExpired("h1"),
        ev.WaitCompleted("w1"),
    )
    assert expired_hooks(state, at(31)) == (ev.HookExpired("h1"), ev.HookExpired("h2"))
    assert due_events(state, at(9.999999)) == ()
    extend(state, due_events(state, at(30)))
    assert due_events(state, at(30)) == ()


def test_a_wait_and_a_hook_of_one_id_and_time_are_both_due():
    state = state_of(*BEGUN, wait("x", 10), hook("x", "1", 10))
    assert set(due_events(state, at(10))) == {ev.WaitCompleted("x"), ev.HookExpired("x")}


def test_nothing_is_due_in_a_run_that_ended_or_was_asked_to_stop():
    for event in (CANCELLING, ev.RunFailed("x")):
        state = state_of(*BEGUN, wait("w", 1), hook("h", "1", 1), event)
        assert due_events(state, at(60)) == ()
        assert expired_hooks(state, at(60)) == ()


def test_two_requests_conflict_when_their_reasons_differ():
    one, other, none = CancellationRequest("a"), CancellationRequest("b"), CancellationRequest()
    assert cancellation_conflict(one, CancellationRequest("a")) is None
    assert cancellation_conflict(none, CancellationRequest()) is None
    assert cancellation_conflict(one, other) == "cancellation was requested with reason 'a', not 'b'"
    assert cancellation_conflict(one, none) == "cancellation was requested with reason 'a', not None"


def test_a_decision_of_another_run_state_is_its_own():
    assert Decision().parks is True
    assert Decision(run=("a",)).parks is False
    assert Decision((ev.WaitCompleted("w"),)).parks is False
    assert decide(RunState(RUN), cmd.Fail("x"), now=NOW) == Decision((ev.RunFailed("x"),))
