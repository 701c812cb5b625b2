"""The store's side of steps that travel, on the clock that fits the database: who has an attempt, and until when."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from flow_app import RetryPolicy
from flow_app.core.payload import Payload
from flow_app.core.ports import RunRow
from flow_app.core.remote import NewStep, StepOut
from flow_app.models import StepExecution
from flow_app.store import DjangoEventStore
from flow_app.testing import FakeClock
from tests.store.support import DONE, SPEC, add, at_once, begin, done

pytestmark = pytest.mark.django_db(transaction=True)

LEASE = timedelta(seconds=30)
GRACE = timedelta(seconds=30)
POLICY = RetryPolicy.fixed(4, timedelta(seconds=3)).continue_workflow_on_failure()


@pytest.fixture(params=["database", "fake"])
def store(request: pytest.FixtureRequest) -> DjangoEventStore:
    """With the database's own clock, and with the application's."""
    return DjangoEventStore() if request.param == "database" else DjangoEventStore(clock=FakeClock())


def sent(store: Any, *step_ids: str, run_id: str = "r1", grace: timedelta = GRACE, **more: Any) -> RunRow:
    """A run with steps out."""
    row = begin(store, run_id, steps_out=len(step_ids))
    steps = [
        NewStep(step_id, 1, "charge", Payload.of({"n": "\u0000ü"}), POLICY, SPEC, **more)  # type: ignore[arg-type]
        for step_id in step_ids
    ]
    with store.transaction():
        store.send_steps(row, steps, grace=grace)
    return row


def found(store: Any, step_id: str = "s", run_id: str = "r1") -> StepOut:
    step = store.find_step(run_id, step_id)
    assert step is not None
    return step


def claim(store: Any, step: StepOut | None = None, *, lease: timedelta = LEASE) -> StepOut | None:
    claimed: StepOut | None = store.claim_step(step or found(store), lease=lease, worker="host:1")
    return claimed


def expired(store: Any, name: str = "lease_expires_at") -> None:
    StepExecution.objects.update(**{name: store.clock.now() - timedelta(seconds=1)})


def test_a_step_that_was_sent_is_found_as_it_was(store):
    row = sent(store, "s", queue="gpu", timeout=timedelta(milliseconds=1500))
    step = found(store)
    assert step.run == (row.key, "r1", row.workflow, row.build)
    assert not step.paused
    assert (step.step_id, step.attempt, step.step_name, step.input) == ("s", 1, "charge", Payload.of({"n": "\u0000ü"}))
    assert (step.retry, step.spec, step.queue, step.timeout) == (POLICY, SPEC, "gpu", timedelta(milliseconds=1500))
    assert (step.deliveries, step.held, step.timed_out, step.late, step.token) == (0, False, False, False, "")
    assert store.steps_out(row) == {"s"}
    assert store.find_step("r1", "S") is None  # no database takes one for the other
    assert store.find_step("nobody", "s") is None


def test_notes_of_an_append_that_is_tried_again_stand_once(store):
    row = sent(store, "s")
    with store.transaction():
        store.send_steps(row, [NewStep("s", 1, "charge", Payload.of(None), POLICY, SPEC)], grace=GRACE)
    assert StepExecution.objects.count() == 1


def test_a_claim_counts_the_delivery_and_keeps_others_away(store):
    sent(store, "s")
    before = found(store)
    mine = claim(store, before)
    assert mine is not None
    assert (mine.deliveries, mine.held) == (1, True)
    assert mine.token != before.token
    assert claim(store, before) is None
    after = found(store)
    assert (after.held, after.deliveries, after.token) == (True, 1, mine.token)
    assert claim(store, after) is None
    assert StepExecution.objects.get().worker == "host:1"


def test_an_expired_lease_is_taken_over_and_the_old_token_opens_nothing(store):
    sent(store, "s")
    old = claim(store)
    expired(store)
    assert not found(store).held
    new = claim(store)
    assert old is not None
    assert new is not None
    assert new.deliveries == 2
    assert not store.renew_step(old, lease=LEASE)
    assert not store.close_step(old, overdue=True)
    assert not store.resend_step(old, grace=GRACE, overdue=True)
    assert store.renew_step(new, lease=LEASE)
    assert store.close_step(new, overdue=False)
    assert store.find_step("r1", "s") is None


@pytest.mark.parametrize(
    ("timeout", "first"),
    [(None, LEASE), (timedelta(seconds=10), timedelta(seconds=10)), (timedelta(hours=1), LEASE)],
    ids=["none", "shorter", "longer"],
)
def test_a_claimed_step_is_looked_at_when_its_lease_or_its_time_is_over(store, timeout, first):
    sent(store, "s", timeout=timeout)
    now = store.clock.now()
    step = claim(store)
    row = StepExecution.objects.get()
    slack = timedelta(seconds=5)
    assert now + first - slack < row.wake_at < now + first + slack
    assert (row.times_out_at is None) is (timeout is None)
    assert store.renew_step(step, lease=timedelta(minutes=2))
    row.refresh_from_db()
    assert now + timedelta(minutes=2) - slack < row.lease_expires_at
    assert row.wake_at == (row.times_out_at if timeout == timedelta(seconds=10) else row.lease_expires_at)


def test_the_end_of_its_time_is_a_fence_though_the_lease_is_held(store):
    sent(store, "s", timeout=timedelta(seconds=10))
    mine = claim(store)
    expired(store, "times_out_at")
    late = found(store)
    assert (late.held, late.timed_out) == (True, True)
    assert not store.renew_step(mine, lease=LEASE)
    assert not store.close_step(mine, overdue=False)
    assert not store.resend_step(mine, grace=GRACE, overdue=False)
    over = StepExecution.objects.get().times_out_at
    other = claim(store, late)
    assert other is not None
    assert StepExecution.objects.get().times_out_at == over
    assert not store.close_step(mine, overdue=True)
    assert store.close_step(other, overdue=True)


def test_an_attempt_that_is_sent_again_is_a_new_one(store):
    sent(store, "s", timeout=timedelta(hours=1))
    mine = claim(store)
    assert store.resend_step(mine, grace=GRACE, overdue=False)
    again = found(store)
    assert (again.attempt, again.token, again.deliveries, again.held, again.timed_out) == (2, "", 0, False, False)
    assert not store.close_step(mine, overdue=True)
    assert claim(store, mine) is None
    assert claim(store, again) is not None


def test_a_terminal_append_forgets_the_steps_and_an_append_that_is_refused_does_not(store):
    row = sent(store, "s", "t")
    other = sent(store, "s", run_id="r2")
    with pytest.raises(Exception, match="was expected to end"):
        add(store, replace(row, last_sequence=row.last_sequence - 1), done(), **DONE)
    assert store.steps_out(row) == {"s", "t"}
    add(store, row, done(), **DONE, steps_out=0)
    assert store.steps_out(row) == set()
    assert store.steps_out(other) == {"s"}


def test_a_recall_forgets_what_nobody_began_and_marks_the_rest(store):
    row = sent(store, "a", "b", "c")
    mine = claim(store, found(store, "b"))
    with store.transaction():
        assert store.recall_steps(row) == 1
    assert store.steps_out(row) == {"b"}
    assert store.step_is_late(mine)
    assert found(store, "b").late


# --- the scheduler's side ---------------------------------------------------------------------------------------------


def take(store: Any, limit: int = 100) -> list[tuple[str, str, int, str | None, str | None]]:
    with store.transaction():
        due = store.take_due_steps(limit=limit, grace=GRACE)
    return [(step.run_id, step.step_id, step.attempt, step.build, step.queue) for step in due]


def test_what_nobody_took_is_due_after_the_grace_and_then_ever_later(store):
    sent(store, "s", queue="gpu", grace=timedelta())
    assert take(store) == [("r1", "s", 1, None, "gpu")]
    assert take(store) == []
    row = StepExecution.objects.get()
    assert row.dispatches == 1
    first = row.wake_at
    expired(store, "wake_at")
    assert len(take(store)) == 1
    row.refresh_from_db()
    assert row.wake_at - first > timedelta(seconds=20)
    assert claim(store) is not None
    row.refresh_from_db()
    assert row.dispatches == 0


def test_due_steps_come_earliest_first_and_at_most_so_many(store):
    sent(store, "a", "b", "c", grace=timedelta())
    StepExecution.objects.filter(step_id="c").update(wake_at=store.clock.now() - timedelta(minutes=1))
    assert [step_id for _, step_id, *_ in take(store, limit=2)] == ["c", "a"]
    assert [step_id for _, step_id, *_ in take(store)] == ["b"]


def test_steps_of_a_paused_run_are_not_taken_and_are_due_when_it_goes_on(store):
    row = sent(store, "s", "t", grace=timedelta())
    mine = claim(store, found(store, "t"))
    paused = store.park(row, change={"paused_at": store.clock.now()})
    assert take(store) == []
    store.park(paused, change={"paused_at": None})
    assert take(store) == []
    store.wake_steps(row)
    assert [step_id for _, step_id, *_ in take(store)] == ["s"]
    assert store.close_step(mine, overdue=False)


def test_the_next_wake_up_of_all_steps(store):
    assert store.next_step_wake() is None
    sent(store, "a", grace=timedelta(hours=1))
    sent(store, "b", run_id="r2", grace=timedelta(minutes=1))
    assert store.next_step_wake() == StepExecution.objects.get(step_id="b").wake_at


def test_schedulers_that_look_at_once_take_each_step_once(store):
    ids = [f"s{number}" for number in range(40)]
    sent(store, *ids, grace=timedelta())
    taken = at_once(*[lambda: take(store, limit=10)] * 4)
    found_ids = [step_id for result in taken for _, step_id, *_ in result]
    found_ids += [step_id for _ in range(4) for _, step_id, *_ in take(store, limit=10)]
    assert sorted(found_ids) == sorted(ids)


def test_workers_that_claim_at_once_are_one(store):
    sent(store, "s")
    claims = at_once(*[lambda: claim(store)] * 8)
    assert sum(isinstance(result, StepOut) for result in claims) == 1
    assert StepExecution.objects.get().deliveries == 1


@pytest.mark.skipif(connection.vendor != "postgresql", reason="only PostgreSQL lets a transaction choose")
def test_a_claim_does_not_wait_for_the_disk_and_what_follows_does(store):
    with connection.cursor() as cursor:
        cursor.execute("SET synchronous_commit TO on")
    sent(store, "s")
    with CaptureQueriesContext(connection) as statements:
        assert claim(store)
    assert [item["sql"].count("set_config('synchronous_commit'") for item in statements].count(1) == 1
    with connection.cursor() as cursor:
        cursor.execute("SHOW synchronous_commit")
        assert cursor.fetchone() == ("on",)
    connection.close()
