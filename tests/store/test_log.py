"""The contract of every store: the log, its compare-and-swap, its fence."""

from __future__ import annotations

import dataclasses
import math
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from uuid import UUID, uuid4

import pytest

from flow_app.core.events import (
    RunCancellationRequested,
    RunCreated,
    RunFailed,
    RunStarted,
    StepFailed,
    StepStarted,
)
from flow_app.core.payload import Payload
from flow_app.core.policy import CancellationRequest
from flow_app.core.ports import NewEvent
from flow_app.errors import EventConflictError, InvalidTransitionError, LeaseLostError, RunNotFoundError
from flow_app.models import Run
from flow_app.store import DjangoEventStore
from tests.store.support import DONE, LEASE, SPEC, add, at_once, begin, done, kinds, new, step, try_begin


def types(store, run_id="r1"):
    return [envelope.type for envelope in store.history(run_id)]


def test_a_new_run_stands_with_its_first_events(store):
    row = begin(store, build=None, open_waits=2, timer_at=store.clock.now())
    assert row == store.row("r1")
    assert (row.last_sequence, row.open_waits, row.timer_at) == (2, 2, store.clock.now())
    assert types(store) == ["run_created", "run_started"]


def test_an_id_is_given_once(store):
    begin(store)
    assert try_begin(store) is None
    assert types(store) == ["run_created", "run_started"]


def test_ids_that_a_database_would_take_for_one_are_several(store):
    for run_id in ("Approve", "approve", "approve ", "ápprove"):
        begin(store, run_id)
    assert store.run_ids() == ["Approve", "approve", "approve ", "ápprove"]
    assert store.row("approve").run_id == "approve"
    with pytest.raises(RunNotFoundError):
        store.row("APPROVE")


def test_two_threads_create_a_run_once(store):
    results = at_once(*[lambda: try_begin(store)] * 4)
    assert kinds(results) == ["NoneType", "NoneType", "NoneType", "RunRow"]
    assert types(store) == ["run_created", "run_started"]


def test_an_append_returns_the_row_as_it_then_is(store):
    row = add(store, begin(store), step(), pending_retries=1)
    assert (row.last_sequence, row.pending_retries) == (3, 1)
    assert row == store.row("r1")


def test_events_come_back_as_they_were_written(store):
    row = begin(store)
    event = new(store, step({"total": 1}), actor="eva", trace={"id": UUID(int=7)})
    store.append(row, [event], change={})
    last = store.history("r1")[-1]
    assert (last.sequence, last.event_id, last.recorded_at) == (3, event.event_id, event.recorded_at)
    assert (last.event, last.meta) == (event.event, {"actor": "eva", "trace": {"id": UUID(int=7)}})
    (recorded,) = store.load(row, after=2)
    assert (recorded.sequence, recorded.event) == (3, event.event)
    assert store.history("r1", after=3) == []
    assert [envelope.sequence for envelope in store.events_of_type(row, "run_started")] == [2]


def test_a_cancellation_request_is_loaded_with_its_time(store):
    row = begin(store)
    event = new(store, RunCancellationRequested(CancellationRequest("enough")))
    store.append(row, [event], change={})
    (recorded,) = store.load(row, after=2)
    assert recorded == (3, event.event, event.recorded_at)


def test_who_expects_an_older_end_conflicts_and_writes_nothing(store):
    old = begin(store)
    add(store, old, step())
    with pytest.raises(EventConflictError) as refused:
        add(store, old, step("late"), open_waits=5)
    assert (refused.value.expected, refused.value.actual) == (2, 3)
    assert (store.row("r1").last_sequence, store.row("r1").open_waits) == (3, 0)


def test_one_of_many_racing_appends_wins(store):
    row = begin(store)
    results = at_once(*[lambda: add(store, row, step())] * 4)
    assert kinds(results) == ["EventConflictError", "EventConflictError", "EventConflictError", "RunRow"]
    assert [envelope.sequence for envelope in store.history("r1")] == [1, 2, 3]


def test_a_repeated_append_is_recognised_by_its_event_ids(store):
    row = begin(store)
    events = [new(store, step()), new(store, done())]
    first = store.append(row, events, change=DONE)
    assert store.append(row, events, change=DONE) == first
    assert types(store)[2:] == ["step_completed", "run_completed"]


def test_an_append_to_an_unknown_run_is_refused(store):
    row = dataclasses.replace(begin(store), key=10**9, run_id="missing")
    with pytest.raises(RunNotFoundError):
        add(store, row, step())


@pytest.mark.parametrize("read", ["row", "history", "lock"])
def test_reading_an_unknown_run_is_refused(store, read):
    with pytest.raises(RunNotFoundError), store.transaction():
        getattr(store, read)("missing")


# --- the fence ------------------------------------------------------------------------------------------------------


def test_an_append_under_the_lease_passes_and_one_without_needs_none(store):
    begin(store)
    row = store.claim("r1", lease=LEASE)
    row = add(store, row, step(), epoch=row.lease_epoch)
    assert add(store, row, step(step_id="b")).last_sequence == 4


def test_who_lost_the_lease_cannot_append(store, clock):
    begin(store)
    old = store.claim("r1", lease=LEASE)
    clock.advance(LEASE)
    assert store.claim("r1", lease=LEASE).lease_epoch > old.lease_epoch
    with pytest.raises(LeaseLostError) as refused:
        add(store, old, step(), epoch=old.lease_epoch)
    assert refused.value.epoch == old.lease_epoch
    assert store.row("r1").last_sequence == 2


def test_who_gave_the_lease_back_cannot_append_under_it(store):
    begin(store)
    row = store.park(store.claim("r1", lease=LEASE), change={"lease_expires_at": None})
    with pytest.raises(LeaseLostError):
        add(store, row, step(), epoch=row.lease_epoch)


def test_a_conflict_under_a_lease_that_holds_is_a_conflict(store):
    begin(store)
    row = store.claim("r1", lease=LEASE)
    add(store, row, step())
    with pytest.raises(EventConflictError):
        add(store, row, step(), epoch=row.lease_epoch)


# --- values ---------------------------------------------------------------------------------------------------------

VALUES = [
    "\x00 \ud800 ümlaut 🙂 'quoted' %s %% \\",
    {"": 1, "a\x00": {"$decimal": "no"}, "ü": None},
    [0.0, -0.0, 1e22, 1e16, 5e-324, 1.0, 1, True, 2**80, -(2**63)],
    [Decimal("1.10"), UUID(int=5), b"\x00\xff", date(2024, 2, 29), time(1, 2, 3, 4), timedelta(-1, 2, 3)],
    [datetime(2024, 2, 29, 1, 2, 3, 456789, UTC), datetime(9999, 12, 31, 23, 59, 59, 999999, UTC)],
    {"deep": [[[[[[[[[[{"x": [1]}]]]]]]]]]]},
]


@pytest.mark.parametrize("value", VALUES, ids=range(len(VALUES)))
def test_values_come_back_exactly(store, value):
    payload = Payload.of(value)
    row = add(store, begin(store), step(value))
    (recorded,) = store.load(row, after=2)
    assert recorded.event.output.digest == payload.digest
    assert repr(recorded.event.output.value) == repr(payload.value)


def test_the_sign_of_zero_survives(store):
    row = add(store, begin(store), step(-0.0))
    assert math.copysign(1, next(iter(store.load(row, after=2))).event.output.value) == -1


def test_text_that_a_database_refuses_is_escaped(store):
    row = begin(store)
    row = add(store, row, RunFailed("boom"), error="a\x00b\ud800", blocked_text="\x00", status=row.status)
    assert row.blocked_text == "\\x00"
    assert store.row("r1") == row


def test_meta_as_long_as_a_traceback_comes_back_exactly(store):
    text = "\n".join(['  File "💥.py", line 1, in \\ \u2028 "', "\t\x1b[0m\r'%s %(x)s {}"] * 300)
    row = store.append(begin(store), [new(store, StepFailed("s", 1, "boom"), traceback=text)], change={})
    assert store.history("r1")[-1].meta == {"traceback": text}
    assert [recorded.event for recorded in store.load(row, after=2)] == [StepFailed("s", 1, "boom")]


def test_many_events_with_much_beside_them_fit_into_an_append(store):
    """Together they are larger than what one statement of MariaDB's carries."""
    events = [new(store, StepFailed(f"s{n}", 1, "boom"), traceback="💥" * 15_000) for n in range(100)]
    store.append(begin(store), events, change={})
    assert [len(envelope.meta["traceback"]) for envelope in store.history("r1", after=2)] == [15_000] * 100


def test_the_traceback_of_what_blocks_a_run_is_kept_on_its_row_alone(store):
    row = begin(store)
    change = {"blocked_code": "x", "blocked_traceback": "💥\x00\ud800" + "x" * 16_000}
    parked = store.park(row, change=change)
    assert (parked.blocked_code, store.row("r1")) == ("x", parked)
    if isinstance(store, DjangoEventStore):
        assert Run.objects.get().blocked_traceback == "💥\\x00\\ud800" + "x" * 16_000
        store.park(parked, change={"blocked_code": "", "blocked_traceback": ""})
        assert Run.objects.get().blocked_traceback == ""


@pytest.mark.parametrize("event", [StepFailed("s", 1, "a\x00\ud83d"), StepStarted("s\u2028", 2)])
def test_text_in_events_comes_back_exactly(store, event):
    row = add(store, begin(store), event)
    assert next(iter(store.load(row, after=2))).event == event


def test_instants_keep_their_microseconds_and_their_years(store):
    row = begin(store)
    for at in (datetime(1, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, 23, 59, 59, 999999, UTC)):
        row = store.append(row, [NewEvent(step(), uuid4(), at)], change={"timer_at": at})
        assert store.row("r1").timer_at == at
        assert store.history("r1")[-1].recorded_at == at


def test_an_imported_history_of_thousands_of_events(store):
    begin(store, "long", *[step(n, f"s{n}") for n in range(3000)])
    history = store.history("long")
    assert [envelope.sequence for envelope in history] == list(range(1, 3003))
    assert history[-1].event == step(2999, "s2999")
    row = add(store, store.row("long"), *[step(n, f"t{n}") for n in range(250)])
    assert (row.last_sequence, len(list(store.load(row, after=3002)))) == (3252, 250)


def test_a_subject_or_name_longer_than_its_column_is_refused(store):
    if not isinstance(store, DjangoEventStore):
        pytest.skip("has no columns")
    with pytest.raises(InvalidTransitionError, match="subject has 201 characters"):
        try_begin(store, subject="x" * 201)
    assert store.run_ids() == []


def test_first_events_are_what_the_fold_begins_with(store):
    row = begin(store)
    created, started = store.load(row)
    assert created.event == RunCreated(SPEC, Payload.of({"n": 1}))
    assert started.event == RunStarted()
