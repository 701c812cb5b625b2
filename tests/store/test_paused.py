"""The contract of every store: a paused run is left alone by whoever drives, and by every scheduler."""

from __future__ import annotations

from datetime import timedelta

import pytest

from flow_app.errors import EventConflictError
from tests.store.support import LEASE, add, at_once, begin, step

GRACE = timedelta(seconds=30)
MINUTE = timedelta(minutes=1)


def pause(store, run_id="r1"):
    with store.transaction():
        row = store.lock(run_id)
        return store.park(row, change={"paused_at": store.clock.now(), "wake_at": None, "wake_reason": "paused"})


def unpause(store, run_id="r1"):
    with store.transaction():
        row = store.lock(run_id)
        return store.park(row, change={"paused_at": None, "wake_at": store.clock.now(), "wake_reason": "runnable"})


def take(store):
    return store.transact(lambda: store.take_due(limit=100, grace=GRACE))


def test_a_paused_run_is_not_claimed(store, clock):
    begin(store)
    paused = pause(store)
    assert paused == store.row("r1")
    assert (paused.paused_at, paused.wake_at, paused.wake_reason) == (clock.now(), None, "paused")
    assert store.claim("r1", lease=LEASE) is None
    assert store.row("r1") == paused
    unpause(store)
    assert store.claim("r1", lease=LEASE).paused_at is None


def test_a_driver_appends_nothing_once_the_run_is_paused(store):
    begin(store)
    row = store.claim("r1", lease=LEASE)
    pause(store)
    with pytest.raises(EventConflictError):
        add(store, row, step(), epoch=row.lease_epoch)
    assert store.row("r1").last_sequence == 2
    unpause(store)
    assert add(store, row, step(), epoch=row.lease_epoch).last_sequence == 3


def test_who_holds_the_rows_lock_may_append_to_a_paused_run(store):
    begin(store)
    pause(store)
    with store.transaction():
        add(store, store.lock("r1"), step())
    row = store.row("r1")
    assert (row.last_sequence, row.wake_at, row.wake_reason) == (3, None, "paused")


def test_parking_is_refused_when_a_pause_came_or_went_since_the_row_was_read(store, clock):
    begin(store)
    row = store.claim("r1", lease=LEASE)
    pause(store)
    assert store.park(row, change={"wake_at": clock.now(), "lease_expires_at": None}) is None
    paused = store.row("r1")
    assert paused.wake_at is None
    unpause(store)
    assert store.park(paused, change={"lease_expires_at": None}) is None
    assert store.row("r1").lease_expires_at is not None


def test_the_lease_of_a_paused_run_is_kept_and_brings_no_wake_up(store, clock):
    begin(store)
    row = store.claim("r1", lease=LEASE)
    pause(store)
    clock.advance(MINUTE)
    assert store.renew(row, lease=LEASE)
    assert (store.row("r1").lease_expires_at, store.row("r1").wake_at) == (clock.now() + LEASE, None)
    assert store.next_wake() is None


def test_no_tick_takes_a_paused_run_however_long_it_sleeps(store, clock):
    begin(store, timer_at=clock.now(), open_waits=1)
    begin(store, "other", timer_at=clock.now() + MINUTE, open_waits=1, wake_at=clock.now() + MINUTE)
    pause(store)
    clock.advance(timedelta(days=400))
    assert [due.run_id for due in take(store)] == ["other"]
    assert [row.run_id for row in store.rows(timer_due=clock.now())] == ["other"]
    assert store.next_timer() == store.row("other").timer_at
    assert [row.run_id for row in store.rows(suspended=True)] == ["other", "r1"]
    unpause(store)
    assert [due.run_id for due in take(store)] == ["r1"]


def test_a_claim_and_a_pause_at_once_leave_no_wake_up(store):
    for number in range(10):
        run_id = f"r{number}"
        begin(store, run_id)
        claimed, paused = at_once(
            lambda run_id=run_id: store.claim(run_id, lease=LEASE), lambda run_id=run_id: pause(store, run_id)
        )
        row = store.row(run_id)
        assert paused is not None
        assert (row.wake_at, row.wake_reason) == (None, "paused")
        # Either the claim came first, and its holder may write no more, or there was no claim.
        if claimed is None:
            assert row.lease_expires_at is None
        else:
            with pytest.raises(EventConflictError):
                add(store, claimed, step(), epoch=claimed.lease_epoch)


def test_a_tick_and_a_pause_at_once_leave_no_wake_up(store):
    for number in range(10):
        run_id = f"r{number}"
        begin(store, run_id)
        taken, _paused = at_once(lambda: take(store), lambda run_id=run_id: pause(store, run_id))
        assert [due.run_id for due in taken] in ([], [run_id])
        assert (store.row(run_id).wake_at, store.row(run_id).wake_reason) == (None, "paused")
