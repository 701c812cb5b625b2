"""The state's journal: steps taken can be taken back, exactly."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from flow_app.core import events as ev
from flow_app.core.payload import NULL
from flow_app.core.state import RunState
from tests.unit.builders import (
    BEGUN,
    CANCELLING,
    CREATED,
    DELAYED,
    HANDLED,
    RUN,
    STARTED,
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

BUSY = (*BEGUN, step("p"), *running("r", TWICE), *retrying("d"), wait(), hook(expires=90), progress(), child())


def contents(state: RunState) -> dict[str, Any]:
    """Everything a state holds but its journal, in copies."""
    return {name: copy.copy(getattr(state, name)) for name in RunState.__slots__ if name != "_journal"}


CHANGES = {
    "run created": ((), (CREATED,)),
    "run started": ((CREATED,), (STARTED,)),
    "step created": (BUSY, (step("new"),)),
    "step started": (BUSY, (ev.StepStarted("p", 1),)),
    "step completed": (BUSY, (ev.StepCompleted("r", NULL),)),
    "step retrying": (BUSY, (ev.StepRetrying("r", 1, "boom", None),)),
    "retry started": (BUSY, (ev.StepStarted("d", 2),)),
    "retry delayed": ((*BEGUN, *running("a", DELAYED)), (ev.StepRetrying("a", 1, "boom", at(9)),)),
    "step failed": ((*BEGUN, *running("a", HANDLED)), (ev.StepFailed("a", 1, "boom"),)),
    "failure to report": (BEGUN, failed("a")),
    "wait created": (BUSY, (wait("new"),)),
    "wait completed": (BUSY, (ev.WaitCompleted("w"),)),
    "hook created": (BUSY, (hook("new", "other"),)),
    "hook received": (BUSY, (ev.HookReceived("h", NULL),)),
    "hook disposed": (BUSY, (ev.HookDisposed("h"),)),
    "hook expired": (BUSY, (ev.HookExpired("h"),)),
    "progress": (BUSY, (progress("new"),)),
    "child": (BUSY, (child("new"),)),
    "cancellation": (BUSY, (CANCELLING,)),
    "late outcome": ((*BUSY, CANCELLING), (ev.StepCompleted("r", NULL),)),
    "ending": (BUSY, (ev.RunFailed("boom"),)),
    "exhaustion": ((*BEGUN, *failed("a"), wait()), (ev.RunRetryExhausted("a", 1, "boom"),)),
    "much at once": (
        BUSY,
        (
            ev.StepStarted("p", 1),
            ev.StepCompleted("p", NULL),
            *completed("n"),
            wait("n"),
            CANCELLING,
            ev.RunCancelled(""),
        ),
    ),
}


@pytest.mark.parametrize(("before", "events"), CHANGES.values(), ids=CHANGES)
def test_a_rollback_leaves_nothing_of_what_was_folded(before, events):
    state = state_of(*before)
    untouched = contents(state)
    mark = state.mark()
    extend(state, events)
    assert contents(state) != untouched
    state.rollback(mark)
    assert contents(state) == untouched
    extend(state, events)
    assert contents(state) == contents(state_of(*before, *events)), "the same events fold again"


def test_a_rollback_goes_back_to_its_own_mark():
    state = state_of(*BEGUN)
    first = state.mark()
    extend(state, running("a"))
    between, second = contents(state), state.mark()
    assert second > first
    extend(state, [ev.StepCompleted("a", NULL), wait()])
    state.rollback(second)
    assert contents(state) == between
    state.rollback(first)
    assert contents(state) == contents(state_of(*BEGUN))


def test_a_rollback_without_a_mark_undoes_all_since_the_first():
    state = state_of(*BEGUN)
    state.mark()
    extend(state, running("a"))
    state.mark()
    extend(state, [wait()])
    state.rollback()
    assert contents(state) == contents(state_of(*BEGUN))


def test_what_is_committed_stays():
    state = state_of(*BEGUN)
    state.mark()
    extend(state, running("a"))
    state.commit()
    state.rollback()
    assert contents(state) == contents(state_of(*BEGUN, *running("a")))
    mark = state.mark()
    assert mark == 0
    extend(state, [wait()])
    state.rollback(mark)
    assert contents(state) == contents(state_of(*BEGUN, *running("a")))


def test_what_came_before_the_first_mark_cannot_be_undone():
    state = state_of(*BEGUN, wait())
    state.rollback()
    assert contents(state) == contents(state_of(*BEGUN, wait()))


def test_the_earliest_of_timers_deadlines_and_retries_is_the_next():
    assert state_of(*BEGUN, *running("a"), hook()).next_timer() is None
    assert state_of(*BEGUN, wait("w", 30), hook("h", expires=20), *retrying("a", 10)).next_timer() == at(10)
    assert state_of(*BEGUN, wait("w", 30), hook("h", expires=20)).next_timer() == at(20)
    assert state_of(*BEGUN, wait("w", 30), hook("h", expires=20), ev.HookDisposed("h")).next_timer() == at(30)
    assert state_of(*BEGUN, wait("w", 30), wait("v", 40), ev.WaitCompleted("w")).next_timer() == at(40)


def test_a_new_state_is_empty():
    state = RunState(RUN)
    assert (state.run_id, state.last_sequence, state.status, state.is_terminal) == (RUN, 0, "pending", False)
    assert state.next_timer() is None
