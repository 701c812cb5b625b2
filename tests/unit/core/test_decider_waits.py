"""The decider on waits, hooks, failures and timers."""

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
from flow_app.core.payload import NULL, Payload
from flow_app.core.policy import CancellationRequest, ChildOperationReference, RetryPolicy, WorkflowProgress
from flow_app.core.state import RunState
from flow_app.core.tokens import digest
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
    completed,
    extend,
    failed,
    hook,
    retrying,
    running,
    state_of,
    wait,
)
from tests.unit.deciding import SMALL, batch, create, decided, link, record, refuse, schedule, wait_until

# --- waits ----------------------------------------------------------------------------------------------------------

CLOCK = "Workflow code must not read the clock: read it in a step."


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
    assert CLOCK in str(error)


def test_scenario_043_a_completed_wait_again_is_refused_at_once():
    refuse(
        (wait(), ev.WaitCompleted("w")), wait_until(), InvalidTransitionError, "already completed.* no forward progress"
    )


def test_scenario_070_a_cancelled_wait_or_hook_needs_a_new_id():
    advice = r"look at ctx\.cancellation_request first and return ctx\.cancel\(\), or clean up under new ids"
    refuse((wait(), CANCELLING), wait_until(), InvalidTransitionError, f"wait 'w' was cancelled; {advice}")
    refuse((hook(), CANCELLING), create(), InvalidTransitionError, f"hook 'h' was cancelled; {advice}")
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
    assert CLOCK in str(error)
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
