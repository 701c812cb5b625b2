"""The contract of every store: the lease, the wake-up, and the scheduler's queries."""

from __future__ import annotations

from datetime import timedelta
from threading import Barrier

import pytest

from flow_app.core.ports import DueRun
from flow_app.core.snapshot import RunStatus
from flow_app.errors import RunNotFoundError
from flow_app.store.leasing import MANY_LOSSES, grace_after
from tests.store.support import DONE, LEASE, add, at_once, begin, done, kinds, step, undone

GRACE = timedelta(seconds=30)
MINUTE = timedelta(minutes=1)


def test_a_claim_takes_the_lease_and_says_when_to_look_again(store, clock):
    begin(store, dispatches=3)
    row = store.claim("r1", lease=LEASE)
    assert row.lease_epoch > 0
    assert (row.lease_expires_at, row.lost_leases) == (clock.now() + LEASE, 0)
    assert (row.wake_at, row.wake_reason, row.dispatches) == (clock.now() + LEASE, "driving", 0)
    assert row == store.row("r1")


def test_a_leased_run_is_not_claimed_until_the_lease_expires(store, clock):
    begin(store)
    first = store.claim("r1", lease=LEASE)
    assert store.claim("r1", lease=LEASE) is None
    clock.advance(LEASE - timedelta(microseconds=1))
    assert store.claim("r1", lease=LEASE) is None
    clock.advance(timedelta(microseconds=1))
    row = store.claim("r1", lease=LEASE)
    assert row.lease_epoch > first.lease_epoch
    assert row.lost_leases == 1


def test_a_lease_that_was_given_back_is_not_lost(store):
    begin(store)
    store.park(store.claim("r1", lease=LEASE), change={"lease_expires_at": None, "wake_at": None})
    assert store.claim("r1", lease=LEASE).lost_leases == 0


def test_an_ended_run_is_not_claimed_and_an_unknown_one_is_an_error(store):
    add(store, begin(store), done(), **DONE)
    assert store.claim("r1", lease=LEASE) is None
    with pytest.raises(RunNotFoundError):
        store.claim("missing", lease=LEASE)


def test_a_claim_of_unpinned_runs_leaves_those_of_a_build_as_they_are(store):
    pinned = begin(store, "pinned", build="2026-01")
    begin(store, "unpinned")
    assert store.claim("pinned", lease=LEASE, unpinned_only=True) is None
    assert store.row("pinned") == pinned
    assert store.claim("unpinned", lease=LEASE, unpinned_only=True) == store.row("unpinned")
    assert store.claim("pinned", lease=LEASE).build == "2026-01"
    with pytest.raises(RunNotFoundError):
        store.claim("missing", lease=LEASE, unpinned_only=True)


def test_one_of_many_racing_claims_wins(store):
    begin(store)
    results = at_once(*[lambda: store.claim("r1", lease=LEASE)] * 4)
    assert kinds(results) == ["NoneType", "NoneType", "NoneType", "RunRow"]


def test_parking_sets_what_it_says_and_nothing_else(store, clock):
    begin(store)
    row = store.claim("r1", lease=LEASE)
    later = clock.now() + MINUTE
    parked = store.park(row, change={"lease_expires_at": None, "wake_at": later, "wake_reason": "timer"})
    assert (parked.lease_expires_at, parked.wake_at, parked.wake_reason) == (None, later, "timer")
    assert parked == store.row("r1")


def test_parking_past_an_unseen_event_is_refused(store):
    begin(store)
    row = store.claim("r1", lease=LEASE)
    add(store, row, step())
    assert store.park(row, change={"wake_at": None}) is None
    assert store.row("r1").wake_at is not None


def test_parking_without_the_lease_is_refused(store, clock):
    begin(store)
    row = store.claim("r1", lease=LEASE)
    clock.advance(LEASE)
    store.claim("r1", lease=LEASE)
    assert store.park(row, change={"wake_at": None}) is None


def test_parking_and_appending_at_once_never_loses_the_event(store, clock):
    for number in range(5):
        begin(store, f"r{number}")
        row = store.claim(f"r{number}", lease=LEASE)
        parked, appended = at_once(
            lambda row=row: store.park(row, change={"wake_at": None, "lease_expires_at": None}),
            lambda row=row: add(store, row, step(), wake_at=clock.now()),
        )
        assert appended.last_sequence == 3
        # Either the park came first and the append woke the run, or the park was refused.
        assert store.row(f"r{number}").wake_at == clock.now()
        assert parked is None or parked.wake_at is None


def test_renewing_extends_a_lease_that_is_held(store, clock):
    begin(store)
    row = store.claim("r1", lease=LEASE)
    clock.advance(MINUTE)
    assert store.renew(row, lease=LEASE)
    assert store.row("r1").lease_expires_at == store.row("r1").wake_at == clock.now() + LEASE
    clock.advance(LEASE)
    store.claim("r1", lease=LEASE)
    assert not store.renew(row, lease=LEASE)


def test_a_lease_that_was_given_back_is_not_renewed(store):
    begin(store)
    row = store.park(store.claim("r1", lease=LEASE), change={"lease_expires_at": None})
    assert not store.renew(row, lease=LEASE)


# --- the scheduler --------------------------------------------------------------------------------------------------


def take(store, limit=100):
    with store.transaction():
        return store.take_due(limit=limit, grace=GRACE)


def test_due_runs_come_earliest_first_and_are_moved_on(store, clock):
    now = clock.now()
    begin(store, "late", wake_at=now, wake_reason="timer")
    begin(store, "early", wake_at=now - MINUTE, wake_reason="retry", build=None)
    begin(store, "future", wake_at=now + timedelta(microseconds=1))
    begin(store, "never", wake_at=None)
    assert take(store) == [DueRun("early", None, "retry"), DueRun("late", None, "timer")]
    row = store.row("late")
    assert (row.wake_at, row.wake_reason, row.dispatches) == (now + GRACE, "dispatched", 1)
    assert take(store) == []
    clock.advance(timedelta(microseconds=1))
    assert take(store) == [DueRun("future", None, "runnable")]


def test_the_limit_leaves_the_rest_for_the_next_tick(store):
    for number in range(5):
        begin(store, f"r{number}")
    assert [due.run_id for due in take(store, 3)] == ["r0", "r1", "r2"]
    assert [due.run_id for due in take(store, 3)] == ["r3", "r4"]


def test_a_run_that_nobody_takes_is_hinted_at_ever_more_seldom(store, clock):
    begin(store)
    waits = []
    for _ in range(8):
        assert len(take(store)) == 1
        waits.append(store.row("r1").wake_at - clock.now())
        clock.advance(waits[-1])
    assert [wait.total_seconds() for wait in waits] == [30, 60, 120, 240, 480, 600, 600, 600]
    store.claim("r1", lease=LEASE)
    assert store.row("r1").dispatches == 0


def test_grace_never_overflows():
    assert grace_after(10**9, GRACE) == timedelta(minutes=10)
    assert grace_after(3, timedelta(hours=1)) == timedelta(hours=1)


def test_a_run_under_a_live_lease_gets_no_hint(store, clock):
    begin(store)
    row = store.claim("r1", lease=LEASE)
    row = add(store, row, step(), epoch=row.lease_epoch, lease_expires_at=clock.now() + 3 * LEASE)
    clock.advance(LEASE)
    assert take(store) == []
    assert store.row("r1").wake_at == row.lease_expires_at
    clock.advance(2 * LEASE)
    assert [due.reason for due in take(store)] == ["driving"]


def test_what_a_failing_tick_took_is_due_again(store):
    begin(store)
    before = store.row("r1")
    with undone(store.transaction()):
        assert len(store.take_due(limit=10, grace=GRACE)) == 1
    assert store.row("r1") == before


def test_two_ticks_at_once_share_the_work(store):
    for number in range(40):
        begin(store, f"r{number:02}")
    results = at_once(*[lambda: take(store, 10)] * 4)
    taken = [due.run_id for result in results for due in result]
    assert len(taken) == len(set(taken))
    assert sorted(taken + [due.run_id for due in take(store)]) == store.run_ids()


def lose(store, clock, times):
    """Claim the run again and again, and die each time."""
    for _ in range(times):
        assert store.claim("r1", lease=LEASE) is not None
        clock.advance(LEASE)


def test_a_run_that_kills_worker_after_worker_is_put_off_ever_longer(store, clock):
    begin(store)
    lose(store, clock, MANY_LOSSES)
    assert [due.reason for due in take(store)] == ["driving"]
    pauses = []
    for _ in range(6):
        lose(store, clock, 1)
        assert take(store) == []
        row = store.row("r1")
        assert (row.wake_reason, row.dispatches) == ("lost", 0)
        pauses.append((row.wake_at - clock.now()).total_seconds())
        clock.advance(row.wake_at - clock.now())
        assert [due.reason for due in take(store)] == ["lost"]
    assert pauses == [30, 60, 120, 240, 480, 600]


def test_a_run_that_moves_again_is_put_off_no_more(store, clock):
    begin(store)
    lose(store, clock, 2 * MANY_LOSSES)
    row = store.claim("r1", lease=LEASE)
    add(store, row, step(), epoch=row.lease_epoch, lost_leases=0)
    clock.advance(LEASE)
    assert [due.reason for due in take(store)] == ["driving"]


def test_the_builds_that_have_work_due(store, clock):
    assert store.due_builds() == set()
    begin(store, "a", build="v1")
    begin(store, "b", build="v1")
    begin(store, "c")
    begin(store, "d", build="v2", wake_at=clock.now() + MINUTE)
    add(store, begin(store, "e", build="v3"), done(), **DONE)
    assert store.due_builds() == {"v1", None}


def test_ticks_in_batches_at_once_take_every_run_once(store):
    """Barriers between the batches: every round, four transactions look at the same head of the queue."""
    for number in range(60):
        begin(store, f"r{number:02}")
    barrier = Barrier(4)

    def tick():
        taken = []
        for _ in range(5):
            barrier.wait(30)
            taken += store.transact(lambda: store.take_due(limit=5, grace=GRACE))
        return taken

    results = at_once(*[tick] * 4)
    taken = [due.run_id for result in results for due in result] + [due.run_id for due in take(store)]
    assert sorted(taken) == store.run_ids()


# --- questions about many runs --------------------------------------------------------------------------------------


def test_rows_come_by_run_id_and_by_what_is_open(store, clock):
    now = clock.now()
    for run_id in ("b", "a", "C", "a-1"):
        begin(store, run_id)
    begin(store, "wait", open_waits=1, timer_at=now)
    begin(store, "hook", active_hooks=1)
    begin(store, "retry", pending_retries=1, timer_at=now + MINUTE)
    add(store, begin(store, "ended", timer_at=now), done(), open_waits=1, **DONE)
    assert [row.run_id for row in store.rows()] == sorted(store.run_ids())
    assert store.run_ids() == ["C", "a", "a-1", "b", "ended", "hook", "retry", "wait"]
    assert [row.run_id for row in store.rows(suspended=True)] == ["hook", "retry", "wait"]
    assert [row.run_id for row in store.rows(timer_due=now)] == ["wait"]
    assert next(iter(store.rows(suspended=True))) == store.row("hook")
    assert store.next_timer() == now


def test_the_summary_counts_by_status_and_what_open_runs_have_open(store):
    begin(store, "a", open_waits=2, active_hooks=1, status=RunStatus.SUSPENDED)
    begin(store, "b", pending_retries=3)
    add(store, begin(store, "c", open_waits=7), done(), **DONE)
    assert store.summary() == {
        "pending": 0, "running": 1, "suspended": 1, "cancelling": 0, "completed": 1, "failed": 0, "cancelled": 0,
        "open_waits": 2, "active_hooks": 1, "pending_retries": 3,
    }  # fmt: skip


def test_the_next_wake_up_is_the_earliest_of_open_runs(store, clock):
    assert store.next_wake() is None
    assert store.next_timer() is None
    begin(store, "a", wake_at=clock.now() + MINUTE)
    begin(store, "b", wake_at=None)
    assert store.next_wake() == clock.now() + MINUTE
