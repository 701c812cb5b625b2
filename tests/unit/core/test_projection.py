"""The fold: which histories are legal, and what they say."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from flow_app.core import events as ev
from flow_app.core.payload import Payload
from flow_app.core.policy import CancellationRequest, RetryPolicy, WorkflowProgress
from flow_app.core.ports import Recorded
from flow_app.core.projection import evolve, fold
from flow_app.core.snapshot import Cancellation, HookStatus, OutcomeType, RunStatus, StepStatus, WaitStatus
from flow_app.core.spec import RuntimeSpec, WorkflowSpec
from flow_app.core.state import RunState
from flow_app.core.tokens import digest
from flow_app.errors import InvalidTransitionError, InvalidWorkflowError, RunNotFoundError
from tests.unit.builders import (
    BEGUN,
    CANCELLING,
    CREATED,
    DELAYED,
    HANDLED,
    NOW,
    ONCE,
    RUN,
    SPEC,
    STARTED,
    TWICE,
    at,
    child,
    completed,
    failed,
    history,
    hook,
    progress,
    retrying,
    running,
    state_of,
    step,
    wait,
)

NO_SUCH = "zzz"
OUTPUT = Payload.of("done")
EXHAUSTED = ev.RunRetryExhausted("a", 1, "boom")
ENDINGS = [
    ev.RunCompleted(OUTPUT),
    ev.RunFailed("boom"),
    ev.RunCancelled("why"),
    ev.RunTimedOut(NOW, "slow"),
    ev.RunHostShutdown("deploy"),
]


def by_type(value: object) -> str:
    return value.type if isinstance(value, ev.Event) else ""


def snapshot_of(*events: ev.Event):
    return fold(RUN, history(*events))


# --- 3.1 the run ----------------------------------------------------------------------------------------------------


def test_a_run_is_pending_then_running():
    created = snapshot_of(CREATED)
    assert (created.status, created.last_sequence) == (RunStatus.PENDING, 1)
    assert (created.spec, created.input) == (SPEC, {"invoice": 7})
    assert snapshot_of(*BEGUN).status == "running"


@pytest.mark.parametrize(
    ("event", "status", "error", "outcome"),
    [
        (ev.RunCompleted(OUTPUT), "completed", None, {"type": "completed", "output": "done"}),
        (ev.RunFailed("boom"), "failed", "boom", {"type": "failed", "error": "boom"}),
        (ev.RunCancelled("why"), "cancelled", "why", {"type": "cancelled", "reason": "why"}),
        (ev.RunCancelled(None), "cancelled", None, {"type": "cancelled", "reason": None}),
        (
            ev.RunTimedOut(NOW, "slow"),
            "failed",
            "slow",
            {"type": "timed_out", "deadline": NOW, "reason": "slow"},
        ),
        (
            ev.RunTimedOut(NOW, None),
            "failed",
            "The run passed its deadline 2026-05-04T12:00:00Z.",
            {"type": "timed_out", "deadline": NOW, "reason": None},
        ),
        (ev.RunHostShutdown("deploy"), "failed", "deploy", {"type": "host_shutdown", "reason": "deploy"}),
        (
            ev.RunHostShutdown(None),
            "failed",
            "The host shut the run down.",
            {"type": "host_shutdown", "reason": None},
        ),
    ],
    ids=by_type,
)
@pytest.mark.parametrize("before", [(CREATED,), BEGUN, (*BEGUN, wait())], ids=["pending", "running", "suspended"])
def test_every_open_run_can_end_in_every_way(before, event, status, error, outcome):
    snapshot = snapshot_of(*before, event)
    assert snapshot.status == status
    assert snapshot.status.is_terminal
    assert snapshot.error == error
    assert snapshot.terminal_outcome is not None
    assert {name: getattr(snapshot.terminal_outcome, name) for name in outcome} == outcome
    assert snapshot.output == outcome.get("output")


@pytest.mark.parametrize("event", [ending for ending in ENDINGS if ending.type != "run_completed"], ids=by_type)
def test_a_run_that_is_cancelling_can_end_in_every_way_but_completed(event):
    assert snapshot_of(*BEGUN, CANCELLING, event).status.is_terminal


def test_retry_exhaustion_ends_a_run_with_its_step():
    snapshot = snapshot_of(*BEGUN, *failed("a"), EXHAUSTED)
    assert (snapshot.status, snapshot.error) == ("failed", "boom")
    outcome = snapshot.terminal_outcome
    assert outcome is not None
    assert (outcome.type, outcome.step_id, outcome.attempt, outcome.error) == ("retry_exhausted", "a", 1, "boom")


def test_completing_clears_the_error_of_nothing_but_the_run():
    snapshot = snapshot_of(*BEGUN, *failed("a", HANDLED), ev.RunCompleted(OUTPUT))
    assert snapshot.error is None
    assert snapshot.steps["a"].error == "boom"


@pytest.mark.parametrize("opening", [(wait(),), (hook(),), retrying()], ids=["wait", "hook", "delayed retry"])
def test_a_running_run_with_something_open_is_suspended(opening):
    assert snapshot_of(*BEGUN, *opening).status == "suspended"
    assert snapshot_of(*BEGUN, *opening).has_open_suspension is True
    assert snapshot_of(CREATED, *opening).status == "pending", "a pending run stays pending"
    cleanup = snapshot_of(*BEGUN, CANCELLING, *opening)
    assert cleanup.status == "cancelling", "so does one that is cancelling"


@pytest.mark.parametrize(
    "closing",
    [
        (wait(), ev.WaitCompleted("w")),
        (hook(), ev.HookReceived("h", OUTPUT)),
        (hook(), ev.HookDisposed("h")),
        (hook(expires=5), ev.HookExpired("h")),
        (*retrying(), ev.StepStarted("a", 2)),
        running("a", TWICE, attempt=2),
        completed("a"),
    ],
    ids=["wait", "hook", "disposed", "expired", "retry started", "immediate retry", "step"],
)
def test_a_run_with_nothing_open_is_running(closing):
    snapshot = snapshot_of(*BEGUN, *closing)
    assert snapshot.status == "running"
    assert snapshot.has_open_suspension is False


# --- 3.2 steps ------------------------------------------------------------------------------------------------------


def test_a_step_goes_from_pending_over_running_to_completed():
    created = snapshot_of(*BEGUN, step("a", DELAYED, {"n": 1})).steps["a"]
    assert (created.status, created.attempt, created.retry_after) == (StepStatus.PENDING, 0, None)
    assert (created.step_name, created.input, created.retry) == ("charge", {"n": 1}, DELAYED)

    started = snapshot_of(*BEGUN, *running("a")).steps["a"]
    assert (started.status, started.attempt) == (StepStatus.RUNNING, 1)

    done = snapshot_of(*BEGUN, *completed("a", [1])).steps["a"]
    assert (done.status, done.attempt, done.output, done.error) == (StepStatus.COMPLETED, 1, [1], None)


def test_a_retry_keeps_the_attempt_and_the_error_until_the_step_succeeds():
    waiting = snapshot_of(*BEGUN, *retrying("a", 60)).steps["a"]
    assert (waiting.status, waiting.attempt, waiting.error) == (StepStatus.PENDING, 1, "boom")
    assert waiting.retry_after == at(60)

    again = snapshot_of(*BEGUN, *retrying("a"), ev.StepStarted("a", 2)).steps["a"]
    assert (again.status, again.attempt, again.error, again.retry_after) == (StepStatus.RUNNING, 2, "boom", None)

    done = snapshot_of(*BEGUN, *retrying("a"), ev.StepStarted("a", 2), ev.StepCompleted("a", OUTPUT)).steps["a"]
    assert (done.status, done.attempt, done.error, done.output) == (StepStatus.COMPLETED, 2, None, "done")


def test_a_step_fails_for_good_at_its_last_attempt():
    events = (*BEGUN, *running("a", TWICE, attempt=2), ev.StepFailed("a", 2, "again"))
    last = snapshot_of(*events).steps["a"]
    assert (last.status, last.attempt, last.error) == (StepStatus.FAILED, 2, "again")
    assert snapshot_of(*events).status == "running", "the run is told by an event of its own"


def test_a_policy_of_zero_attempts_is_one_attempt():
    zero = RetryPolicy(max_attempts=0)
    assert snapshot_of(*BEGUN, *failed("a", zero)).steps["a"].status == "failed"
    refuse(*BEGUN, *running("a", zero), event=ev.StepRetrying("a", 1, "boom", None), reason="no attempt left")


def test_steps_waits_and_hooks_need_no_started_run():
    snapshot = snapshot_of(CREATED, *completed("a"), wait(), hook(), progress(), child(), STARTED)
    assert snapshot.status == "suspended"


# --- 3.3 to 3.5 -----------------------------------------------------------------------------------------------------


def test_a_wait_is_waiting_then_completed():
    assert snapshot_of(*BEGUN, wait("w", 60)).waits["w"].resume_at == at(60)
    assert snapshot_of(*BEGUN, wait()).waits["w"].status == WaitStatus.WAITING
    assert snapshot_of(*BEGUN, wait(), ev.WaitCompleted("w")).waits["w"].status == WaitStatus.COMPLETED


@pytest.mark.parametrize(
    ("event", "status"),
    [
        (ev.HookReceived("h", Payload.of({"ok": None})), HookStatus.RECEIVED),
        (ev.HookReceived("h", Payload.of(None)), HookStatus.RECEIVED),
        (ev.HookDisposed("h"), HookStatus.DISPOSED),
        (ev.HookExpired("h"), HookStatus.EXPIRED),
    ],
    ids=["received", "received null", "disposed", "expired"],
)
def test_a_hook_is_active_then_resolved_once(event, status):
    created = hook("h", "t0ken", expires=60, metadata=Payload.of({"kind": "x"}))
    active = snapshot_of(*BEGUN, created).hooks["h"]
    assert (active.status, active.metadata, active.payload) == (HookStatus.ACTIVE, {"kind": "x"}, None)
    assert (active.token_digest, active.expires_at) == (digest("t0ken"), at(60))
    assert "sha256" not in repr(active)

    resolved = snapshot_of(*BEGUN, created, event).hooks["h"]
    assert resolved.status == status
    assert resolved.received_payload == (event.payload if isinstance(event, ev.HookReceived) else None)


def test_progress_stands_in_the_order_of_its_commits():
    snapshot = snapshot_of(*BEGUN, progress("z", 3), progress("a", 1), progress("m", 2, message="half"))
    assert [entry.progress_id for entry in snapshot.progress] == ["z", "a", "m"], "nothing is monotonic between ids"
    assert snapshot.latest_progress == WorkflowProgress("m", 2, message="half")
    assert snapshot_of(*BEGUN).latest_progress is None


def test_maps_are_sorted_by_id():
    snapshot = snapshot_of(
        *BEGUN, step("b"), step("a"), wait("w2"), wait("w1"), hook("h2", "1"), hook("h1", "2"), child("c2"), child("c1")
    )
    maps = snapshot.steps, snapshot.waits, snapshot.hooks, snapshot.child_operations
    assert [list(found) for found in maps] == [["a", "b"], ["w1", "w2"], ["h1", "h2"], ["c1", "c2"]]


def test_a_cancellation_request_is_kept_with_its_time_and_place():
    snapshot = snapshot_of(*BEGUN, CANCELLING)
    assert snapshot.status == "cancelling"
    assert snapshot.cancellation == Cancellation(CancellationRequest("changed my mind"), at(3), 3)
    assert snapshot_of(CREATED, CANCELLING).status == "cancelling"
    assert snapshot_of(*BEGUN, CANCELLING, ev.RunCancelled("other")).cancellation == snapshot.cancellation


# --- cancellation and endings close what is open ------------------------------------------------------------------


OPEN = (
    *BEGUN,
    step("pending"),
    *running("running"),
    *retrying("delayed"),
    *completed("completed"),
    *failed("failed", HANDLED),
    wait("open"),
    wait("over"),
    ev.WaitCompleted("over"),
    hook("active", "1", expires=60),
    hook("received", "2"),
    ev.HookReceived("received", OUTPUT),
    hook("disposed", "3"),
    ev.HookDisposed("disposed"),
    hook("expired", "4", expires=1),
    ev.HookExpired("expired"),
)


@pytest.mark.parametrize("event", [CANCELLING, *ENDINGS], ids=by_type)
def test_scenario_068_cancellation_and_endings_close_what_is_open_and_nothing_else(event):
    state = state_of(*OPEN)
    assert state.next_timer() == at(60)
    assert state.status == RunStatus.SUSPENDED

    state = state_of(*OPEN, event)
    snapshot = state.snapshot()
    assert {name: found.status.value for name, found in snapshot.steps.items()} == {
        "pending": "cancelled",
        "running": "cancelled",
        "delayed": "cancelled",
        "completed": "completed",
        "failed": "failed",
    }
    assert {name: found.status.value for name, found in snapshot.waits.items()} == {
        "open": "cancelled",
        "over": "completed",
    }
    assert {name: found.status.value for name, found in snapshot.hooks.items()} == {
        "active": "cancelled",
        "received": "received",
        "disposed": "disposed",
        "expired": "expired",
    }
    assert snapshot.steps["delayed"].retry_after is None
    assert snapshot.has_open_suspension is False
    assert snapshot.due_retries(at(10**6)) == []
    assert state.next_timer() is None
    assert [state.open_steps, state.delayed_steps, state.open_waits, state.active_hooks] == [{}, {}, {}, {}]


def test_a_run_that_exhausted_its_retries_closes_its_other_steps():
    snapshot = snapshot_of(*BEGUN, *running("b"), *failed("a"), wait(), hook(), EXHAUSTED)
    assert {name: found.status.value for name, found in snapshot.steps.items()} == {"a": "failed", "b": "cancelled"}
    assert (snapshot.waits["w"].status, snapshot.hooks["h"].status) == ("cancelled", "cancelled")


@pytest.mark.parametrize(
    ("outcome", "status"),
    [
        (ev.StepCompleted("a", OUTPUT), "completed"),
        (ev.StepFailed("a", 1, "boom"), "failed"),
    ],
    ids=by_type,
)
@pytest.mark.parametrize("retry", [ONCE, TWICE, DELAYED, HANDLED], ids=["once", "twice", "delayed", "handled"])
def test_an_attempt_that_ran_at_the_request_may_report_once_while_cancelling(outcome, status, retry):
    state = state_of(*BEGUN, *running("a", retry), CANCELLING)
    assert state.steps["a"].status == "cancelled"
    assert state.steps["a"].awaits_outcome_of(1)
    assert not state.steps["a"].awaits_outcome_of(2)

    late = state_of(*BEGUN, *running("a", retry), CANCELLING, outcome)
    assert late.steps["a"].status == status
    assert late.status == RunStatus.CANCELLING
    assert late.unreported_failure is None, "the workflow cleans up: a late failure does not fail the run"
    for again in (ev.StepCompleted("a", OUTPUT), ev.StepFailed("a", 1, "boom")):
        refuse(*BEGUN, *running("a", retry), CANCELLING, outcome, event=again, reason=f"which is {status}")


@pytest.mark.parametrize(
    ("before", "event"),
    [
        (running("a", TWICE), ev.StepRetrying("a", 1, "boom", None)),
        (running("a"), ev.StepStarted("a", 1)),
        (running("a"), ev.StepStarted("a", 2)),
        (running("a", TWICE), ev.StepFailed("a", 2, "boom")),
        ((step("a"),), ev.StepStarted("a", 1)),
        ((step("a"),), ev.StepCompleted("a", OUTPUT)),
        ((step("a"),), ev.StepFailed("a", 0, "boom")),
        (retrying("a"), ev.StepStarted("a", 2)),
        (retrying("a"), ev.StepCompleted("a", OUTPUT)),
        (retrying("a"), ev.StepFailed("a", 1, "boom")),
        ((wait(),), ev.WaitCompleted("w")),
        ((hook(expires=1),), ev.HookReceived("h", OUTPUT)),
        ((hook(expires=1),), ev.HookDisposed("h")),
        ((hook(expires=1),), ev.HookExpired("h")),
    ],
    ids=lambda value: by_type(value) or "-".join(event.type for event in value),
)
def test_nothing_that_a_request_cancelled_goes_on(before, event):
    refuse(*BEGUN, *before, CANCELLING, event=event, reason="cancelled|names attempt")


def test_clean_up_uses_new_ids_and_is_ordinary():
    snapshot = snapshot_of(*OPEN, CANCELLING, *completed("refund"), wait("w-2"), hook("h-2", "9"), progress(), child())
    assert snapshot.status == "cancelling"
    assert snapshot.steps["refund"].status == "completed"
    assert snapshot.waits["w-2"].status == "waiting"
    assert snapshot.hooks["h-2"].status == "active"


def test_a_clean_up_step_that_fails_for_good_fails_the_run():
    snapshot = snapshot_of(*BEGUN, CANCELLING, *failed("a"), EXHAUSTED)
    assert (snapshot.status, snapshot.error) == ("failed", "boom")


def test_a_failure_recorded_before_the_request_still_wins():
    state = state_of(*BEGUN, *failed("a"), CANCELLING)
    assert state.unreported_failure == "a"
    assert state_of(*BEGUN, *failed("a"), CANCELLING, EXHAUSTED).status == "failed"


# --- 3.6 refusals ---------------------------------------------------------------------------------------------------


def refuse(*before: ev.Event, event: ev.Event, reason: str) -> None:
    """The event is refused after these, and leaves the state as it was."""
    state = state_of(*before)
    marked = state.mark()
    untouched = state.snapshot() if before else None
    with pytest.raises(InvalidTransitionError, match=reason):
        evolve(state, Recorded(state.last_sequence + 1, event, NOW))
    assert state.last_sequence == len(before)
    assert state.mark() == marked, "nothing was written"
    assert untouched is None or state.snapshot() == untouched


def test_an_empty_history_is_no_run():
    with pytest.raises(RunNotFoundError) as caught:
        fold(RUN, [])
    assert caught.value.run_id == RUN


REFUSALS = {
    "run_started twice": (BEGUN, STARTED, "run_started while running"),
    "run_started while cancelling": ((CREATED, CANCELLING), STARTED, "run_started while cancelling"),
    "completed while cancelling": ((*BEGUN, CANCELLING), ev.RunCompleted(OUTPUT), "run_completed while cancelling"),
    "second request": ((*BEGUN, CANCELLING), CANCELLING, "second cancellation request"),
    "exhausted unknown step": (BEGUN, EXHAUSTED, "unknown step 'a'"),
    "exhausted pending step": ((*BEGUN, step()), EXHAUSTED, "which is pending"),
    "exhausted running step": ((*BEGUN, *running()), EXHAUSTED, "which is running"),
    "exhausted completed step": ((*BEGUN, *completed()), EXHAUSTED, "which is completed"),
    "exhausted other attempt": (
        (*BEGUN, *failed()),
        replace(EXHAUSTED, attempt=2),
        "does not repeat attempt and error",
    ),
    "exhausted other error": (
        (*BEGUN, *failed()),
        replace(EXHAUSTED, error="bang"),
        "does not repeat attempt and error",
    ),
    "exhausted handled step": ((*BEGUN, *failed("a", HANDLED)), EXHAUSTED, "whose failure the workflow handles"),
    "exhausted late failure": (
        (*BEGUN, *running(), CANCELLING, ev.StepFailed("a", 1, "boom")),
        EXHAUSTED,
        "whose failure the workflow handles",
    ),
    "step created twice": ((*BEGUN, step()), step(), "created twice"),
    "step created with an endless delay": (BEGUN, step(retry=RetryPolicy(2, 2**64 - 1)), "after the year 9999"),
    "step_started unknown": (BEGUN, ev.StepStarted(NO_SUCH, 1), "unknown step 'zzz'"),
    "step_started running": ((*BEGUN, *running()), ev.StepStarted("a", 2), "which is running"),
    "step_started completed": ((*BEGUN, *completed()), ev.StepStarted("a", 2), "which is completed"),
    "step_started failed": ((*BEGUN, *failed()), ev.StepStarted("a", 2), "which is failed"),
    "step_started at attempt 2": ((*BEGUN, step()), ev.StepStarted("a", 2), "starts attempt 2 after attempt 0"),
    "step_started at attempt 0": ((*BEGUN, step()), ev.StepStarted("a", 0), "starts attempt 0 after attempt 0"),
    "step_started at attempt 1 again": ((*BEGUN, *retrying()), ev.StepStarted("a", 1), "attempt 1 after attempt 1"),
    "step_completed unknown": (BEGUN, ev.StepCompleted(NO_SUCH, OUTPUT), "unknown step"),
    "step_completed pending": ((*BEGUN, step()), ev.StepCompleted("a", OUTPUT), "which is pending"),
    "step_completed twice": ((*BEGUN, *completed()), ev.StepCompleted("a", OUTPUT), "which is completed"),
    "step_completed failed": ((*BEGUN, *failed()), ev.StepCompleted("a", OUTPUT), "which is failed"),
    "step_retrying unknown": (BEGUN, ev.StepRetrying(NO_SUCH, 1, "", None), "unknown step"),
    "step_retrying pending": ((*BEGUN, *retrying()), ev.StepRetrying("a", 1, "", at(1)), "which is pending"),
    "step_retrying other attempt": (
        (*BEGUN, *running("a", TWICE)),
        ev.StepRetrying("a", 2, "", None),
        "names attempt 2 of step 'a', which runs attempt 1",
    ),
    "step_retrying at the last attempt": ((*BEGUN, *running()), ev.StepRetrying("a", 1, "", None), "no attempt left"),
    "step_failed unknown": (BEGUN, ev.StepFailed(NO_SUCH, 1, ""), "unknown step"),
    "step_failed pending": ((*BEGUN, step()), ev.StepFailed("a", 0, ""), "which is pending"),
    "step_failed completed": ((*BEGUN, *completed()), ev.StepFailed("a", 1, ""), "which is completed"),
    "step_failed twice": ((*BEGUN, *failed()), ev.StepFailed("a", 1, "boom"), "which is failed"),
    "step_failed other attempt": ((*BEGUN, *running()), ev.StepFailed("a", 2, ""), "names attempt 2"),
    "step_failed too early": ((*BEGUN, *running("a", TWICE)), ev.StepFailed("a", 1, ""), "fails at attempt 1 of 2"),
    "wait created twice": ((*BEGUN, wait()), wait(), "created twice"),
    "wait created again": ((*BEGUN, wait(), ev.WaitCompleted("w")), wait("w", 9), "created twice"),
    "wait_completed unknown": (BEGUN, ev.WaitCompleted(NO_SUCH), "which is unknown"),
    "wait_completed twice": ((*BEGUN, wait(), ev.WaitCompleted("w")), ev.WaitCompleted("w"), "which is completed"),
    "hook created twice": ((*BEGUN, hook()), hook("h", "other"), "created twice"),
    "hook created again": ((*BEGUN, hook(), ev.HookDisposed("h")), hook(), "created twice"),
    "hook_expired without deadline": ((*BEGUN, hook()), ev.HookExpired("h"), "has no deadline"),
    "progress twice": ((*BEGUN, progress()), progress(), "recorded twice"),
    "progress twice otherwise": ((*BEGUN, progress()), progress("p", 2), "recorded twice"),
    "child twice": ((*BEGUN, child()), child(), "linked twice"),
    "run_created again": (BEGUN, CREATED, "run_created comes first, and once"),
}


@pytest.mark.parametrize(("before", "event", "reason"), REFUSALS.values(), ids=REFUSALS)
def test_scenario_091_an_event_that_does_not_fit_is_refused(before, event, reason):
    refuse(*before, event=event, reason=reason)


@pytest.mark.parametrize(
    "event", [ev.HookReceived("h", OUTPUT), ev.HookDisposed("h"), ev.HookExpired("h")], ids=by_type
)
@pytest.mark.parametrize(
    ("before", "found"),
    [
        ((), "unknown"),
        ((hook(expires=1), ev.HookReceived("h", OUTPUT)), "received"),
        ((hook(expires=1), ev.HookDisposed("h")), "disposed"),
        ((hook(expires=1), ev.HookExpired("h")), "expired"),
    ],
    ids=["unknown", "received", "disposed", "expired"],
)
def test_scenario_091_a_hook_is_resolved_only_while_active(before, found, event):
    refuse(*BEGUN, *before, event=event, reason=f"{event.type} for hook 'h', which is {found}")


@pytest.mark.parametrize("event", [STARTED, ev.RunFailed("x"), step(), wait(), progress(), CANCELLING], ids=by_type)
def test_scenario_085_a_history_begins_with_run_created(event):
    refuse(event=event, reason="run_created comes first")


@pytest.mark.parametrize("sequences", [(1, 3), (2, 3), (1, 1), (0, 1), (2, 1)], ids=str)
def test_scenario_085_sequences_are_1_2_3_in_this_order(sequences):
    events = [replace(envelope, sequence=number) for envelope, number in zip(history(*BEGUN), sequences, strict=True)]
    with pytest.raises(InvalidTransitionError, match="does not follow event"):
        fold(RUN, events)


def test_scenario_085_a_history_out_of_order_is_never_sorted():
    with pytest.raises(InvalidTransitionError, match="does not follow event 0"):
        fold(RUN, reversed(history(*BEGUN)))


def test_scenario_085_a_step_created_twice_is_refused():
    with pytest.raises(InvalidTransitionError, match="step 'a' is created twice"):
        snapshot_of(*BEGUN, step("a"), step("a"))


@pytest.mark.parametrize("ending", [*ENDINGS, EXHAUSTED], ids=by_type)
@pytest.mark.parametrize(
    "event",
    [STARTED, CANCELLING, *ENDINGS, EXHAUSTED, ev.StepCompleted("b", OUTPUT), ev.StepFailed("b", 1, ""), wait("w2"),
     ev.WaitCompleted("w"), ev.HookReceived("h", OUTPUT), ev.HookDisposed("h"), progress(), child(), step("c"),
     hook("h2"), CREATED],
    ids=by_type,
)  # fmt: skip
def test_scenario_085_nothing_follows_an_ending(ending, event):
    before = (*BEGUN, *failed("a"), *running("b"), wait(), hook(), ending)
    refuse(*before, event=event, reason="after the run has ended|run_created comes first")


@pytest.mark.parametrize(
    ("before", "event"),
    [
        ((step("a", DELAYED),), ev.StepStarted("a", 2)),
        (running("a", DELAYED), ev.StepRetrying("a", 2, "boom", at(60))),
        (running("a", ONCE), ev.StepFailed("a", 2, "boom")),
    ],
    ids=["started", "retrying", "failed"],
)
def test_scenario_086_an_event_of_another_attempt_is_refused(before, event):
    refuse(*BEGUN, *before, event=event, reason="attempt 2")


def test_scenario_088_a_delayed_policy_needs_a_time_and_an_immediate_one_has_none():
    refuse(*BEGUN, *running("a", DELAYED), event=ev.StepRetrying("a", 1, "", None), reason="its delay of 60000 ms")
    refuse(*BEGUN, *running("a", TWICE), event=ev.StepRetrying("a", 1, "", at(1)), reason="its delay of 0 ms")


def test_scenario_089_exhaustion_repeats_a_failure_that_fails_the_run():
    refuse(*BEGUN, *failed("a", HANDLED), event=EXHAUSTED, reason="whose failure the workflow handles")
    refuse(*BEGUN, *failed("a"), event=replace(EXHAUSTED, error="bang"), reason="does not repeat")


def test_scenario_091_an_event_of_another_run_is_refused():
    strange = [*history(CREATED), replace(history(*BEGUN)[1], run_id="run-2")]
    with pytest.raises(InvalidTransitionError, match="event 2 belongs to run 'run-2'"):
        fold(RUN, strange)


@pytest.mark.parametrize(
    "tree",
    [
        None,
        5,
        [],
        {},
        {"progress_id": "p"},
        {"completed": 1},
        {"progress_id": "p", "completed": 1, "extra": 1},
        {"progress_id": "", "completed": 1},
        {"progress_id": 5, "completed": 1},
        {"progress_id": "p", "completed": 1.0},
        {"progress_id": "p", "completed": -1},
        {"progress_id": "p", "completed": 1, "total": 0},
        {"progress_id": "p", "completed": 3, "total": 2},
        {"progress_id": "p", "completed": 1, "message": 5},
    ],
    ids=str,
)
def test_scenario_091_invalid_progress_in_a_history_is_refused(tree):
    refuse(*BEGUN, event=ev.RunProgressRecorded(Payload.of(tree)), reason=".")


@pytest.mark.parametrize(
    "tree",
    [
        None,
        5,
        [],
        {},
        {"reference_id": "c", "kind": "k"},
        {"reference_id": "c", "kind": "k", "operation_id": "o", "extra": 1},
        {"reference_id": " ", "kind": "k", "operation_id": "o"},
        {"reference_id": "c", "kind": "", "operation_id": "o"},
        {"reference_id": "c", "kind": "k", "operation_id": 5},
        {"reference_id": "c", "kind": "k", "operation_id": "o", "flow_run_id": "../x"},
    ],
    ids=str,
)
def test_scenario_091_an_invalid_child_in_a_history_is_refused(tree):
    refuse(*BEGUN, event=ev.ChildOperationLinked(Payload.of(tree)), reason=".")


@pytest.mark.parametrize(
    "spec",
    [
        WorkflowSpec("", "1"),
        WorkflowSpec("a", " "),
        WorkflowSpec("a", "1", RuntimeSpec("", "e", "x")),
        WorkflowSpec("a", "1", RuntimeSpec("k", "", "x")),
        WorkflowSpec("a", "1", RuntimeSpec("k", "e", "")),
        WorkflowSpec("a", "1", runtime_build_id="-x"),
    ],
)
def test_a_history_of_an_invalid_spec_is_an_invalid_workflow(spec):
    state = RunState(RUN)
    with pytest.raises(InvalidWorkflowError):
        evolve(state, Recorded(1, ev.RunCreated(spec, OUTPUT), NOW))
    assert state.last_sequence == 0
    assert state.spec is None


# --- reads of the snapshot ------------------------------------------------------------------------------------------


def test_a_snapshot_answers_by_id_and_none_for_unknown_ids():
    snapshot = snapshot_of(
        *BEGUN, *completed("a", {"n": 1}), hook(), ev.HookReceived("h", Payload.of([2])), child("c", "job-9")
    )
    assert snapshot.step_output("a") == {"n": 1}
    assert snapshot.hook_payload("h") == [2]
    found = snapshot.child_operation("c")
    assert found is not None
    assert found.operation_id == "job-9"
    assert snapshot.step_output(NO_SUCH) is None
    assert snapshot.hook_payload(NO_SUCH) is None
    assert snapshot.child_operation(NO_SUCH) is None


def test_retries_are_due_at_their_time_and_not_before():
    snapshot = snapshot_of(*BEGUN, *retrying("b", 10), *retrying("a", 20), *running("c"))
    assert snapshot.due_retries(at(9)) == []
    assert snapshot.due_retries(at(10)) == ["b"]
    assert snapshot.due_retries(at(20)) == ["a", "b"]
    assert snapshot.has_future_retry(at(10)) is True
    assert snapshot.has_future_retry(at(20)) is False


def test_a_snapshot_stays_as_it_was_when_the_run_goes_on():
    state = state_of(*BEGUN, step("a"))
    before = state.snapshot()
    evolve(state, Recorded(4, ev.StepStarted("a", 1), NOW + timedelta(1)))
    evolve(state, Recorded(5, wait(), NOW + timedelta(1)))
    assert before == state_of(*BEGUN, step("a")).snapshot()
    assert before.steps["a"].status == "pending"


def test_outcome_types_are_those_of_the_reference_engine():
    assert [outcome.value for outcome in OutcomeType] == [
        "completed", "failed", "cancelled", "timed_out", "retry_exhausted", "host_shutdown",
    ]  # fmt: skip
