"""Histories in few words, and how they are folded."""

from __future__ import annotations

import pytest

from flow_app.core import events as ev
from flow_app.core.payload import Payload
from flow_app.core.ports import Recorded
from flow_app.core.projection import evolve, fold
from flow_app.errors import InvalidTransitionError
from tests.unit.builders import NOW, RUN, history, state_of

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
