"""Which histories the fold refuses (3.6), leaving the state as it was."""

from __future__ import annotations

from dataclasses import replace

import pytest

from flow_app.core import events as ev
from flow_app.core.payload import Payload
from flow_app.core.policy import RetryPolicy
from flow_app.core.ports import Recorded
from flow_app.core.projection import evolve, fold
from flow_app.core.spec import RuntimeSpec, WorkflowSpec
from flow_app.core.state import RunState
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
    step,
    wait,
)
from tests.unit.folding import ENDINGS, EXHAUSTED, NO_SUCH, OUTPUT, by_type, refuse, snapshot_of

# --- 3.6 refusals ---------------------------------------------------------------------------------------------------


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
