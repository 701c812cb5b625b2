"""An event that is too long to be read whole still says what it is about, and no payload can speak for it."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest

from flow_app.core.codec import to_text
from flow_app.core.events import (
    ChildOperationLinked,
    HookCreated,
    HookReceived,
    RunCompleted,
    RunFailed,
    RunProgressRecorded,
    StepCompleted,
    StepCreated,
    StepFailed,
    StepRetrying,
    WaitCreated,
)
from flow_app.core.payload import Payload
from flow_app.core.policy import ChildOperationReference, RetryPolicy, WorkflowProgress
from flow_app.core.tokens import digest
from flow_app.models import Event
from flow_app.presenting.marks import read_marks
from flow_app.store import DjangoEventStore
from tests.store.support import begin

pytestmark = pytest.mark.django_db(transaction=True)

NOW = datetime(2026, 3, 2, 10, tzinfo=UTC)
ODD = 'é"}\\{"step_id":"no"}𝄞'
#: A value whose end looks like the end of an event.
TRAP = Payload.of({"big": "x" * 9000, "z": {"step_id": "trap", "hook_id": "trap", "reference_id": "trap"}})


def mark_of(event):
    before = [HookCreated(ODD, digest("t"), Payload.of({}))] if isinstance(event, HookReceived) else []
    row = begin(DjangoEventStore(), "r", *before, event)
    (mark,) = read_marks(Event.objects.filter(run=row.key, sequence=row.last_sequence))
    assert mark.type == event.type
    return mark


@pytest.mark.parametrize(
    "event",
    [
        StepCreated(ODD, "work", TRAP, RetryPolicy()),
        StepCompleted(ODD, TRAP),
        StepCompleted(ODD, Payload.of(1)),
        HookCreated(ODD, digest("t"), TRAP, expires_at=NOW),
        HookCreated(ODD, digest("t"), TRAP),
        HookReceived(ODD, TRAP),
        WaitCreated(ODD, NOW),
        RunProgressRecorded(WorkflowProgress(ODD, 1, 2, details={"big": "x" * 9000}).to_payload()),
        ChildOperationLinked(ChildOperationReference(ODD, "k", "o", metadata={"big": "x" * 9000}).to_payload()),
    ],
    ids=lambda event: event.type,
)
def test_the_name_of_an_event_is_found(event):
    assert mark_of(event).name == ODD


@pytest.mark.parametrize(
    "event", [RunCompleted(TRAP), RunFailed("x" * 9000 + '"step_id":"trap"}')], ids=["output", "error"]
)
def test_what_has_no_name_gets_none_from_its_payload(event):
    assert mark_of(event).name == ""


def test_a_step_keeps_its_name_attempt_and_the_beginning_of_its_error():
    failed = mark_of(StepFailed("s", 7, "é" * 20_000))
    assert (failed.name, failed.attempt) == ("s", 7)
    assert failed.note.startswith("ééé")
    assert len(failed.note) <= 1000


def test_a_retry_says_when():
    assert mark_of(StepRetrying("s", 1, "no", NOW)).until == NOW


def test_a_step_says_which_function_it_is():
    assert mark_of(StepCreated("s", "work", TRAP, RetryPolicy())).detail == "work"


def test_the_text_of_events_has_its_keys_in_order():
    """The short cut for long events rests on it."""
    text = to_text(StepCreated("s", "work", Payload.of({"b": 1}), RetryPolicy()))
    assert list(json.loads(text)) == sorted(json.loads(text))
