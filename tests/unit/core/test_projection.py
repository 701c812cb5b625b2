"""The fold: which histories are legal, and what they say."""

from __future__ import annotations

from datetime import timedelta

import pytest

from flow_app.core import events as ev
from flow_app.core.payload import Payload
from flow_app.core.policy import CancellationRequest, RetryPolicy, WorkflowProgress
from flow_app.core.ports import Recorded
from flow_app.core.projection import evolve
from flow_app.core.snapshot import Cancellation, HookStatus, OutcomeType, RunStatus, StepStatus, WaitStatus
from flow_app.core.tokens import digest
from tests.unit.builders import (
    BEGUN,
    CANCELLING,
    CREATED,
    DELAYED,
    HANDLED,
    NOW,
    ONCE,
    SPEC,
    STARTED,
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
from tests.unit.folding import ENDINGS, EXHAUSTED, NO_SUCH, OUTPUT, by_type, refuse, snapshot_of

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
