"""Steps that travel, in one statement each way: what PostgreSQL does must be what the long way does, or nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from flow_app.core.events import StepCreated, StepStarted
from flow_app.core.payload import Payload
from flow_app.core.remote import Closed, NewStep
from flow_app.core.snapshot import RunStatus
from flow_app.core.spec import RuntimeBuildCompatibility
from flow_app.errors import EventConflictError, LeaseLostError
from flow_app.models import Run, StepExecution
from flow_app.store import DjangoEventStore
from flow_app.testing import FakeClock
from tests.store.support import SPEC, begin, new, step
from tests.store.test_travelling import GRACE, LEASE, POLICY, claim, expired, found, sent

pytestmark = pytest.mark.django_db(transaction=True)

IN_ONE = connection.vendor == "postgresql"
in_one = pytest.mark.skipif(not IN_ONE, reason="only PostgreSQL does it")


@pytest.fixture(params=["database", "fake"])
def store(request: pytest.FixtureRequest) -> DjangoEventStore:
    return DjangoEventStore() if request.param == "database" else DjangoEventStore(clock=FakeClock())


def take(store: Any, step_id: str = "s", attempt: int = 1, **changed: Any) -> Any:
    how = {"names": ["charge"], "builds": None, "lease": LEASE, "worker": "host:1", **changed}
    return store.take_step("r1", step_id, attempt, **how)


@pytest.mark.skipif(IN_ONE, reason="PostgreSQL does it")
def test_elsewhere_nothing_is_done(store):
    row = sent(store, "s")
    assert take(store) is None
    assert store.complete_step(claim(store), new(store, step(step_id="s"))) is None
    claimed = store.claim("r1", lease=LEASE)
    one = [NewStep("t", 1, "charge", Payload.of(None), POLICY, SPEC)]
    how = {"change": {}, "epoch": claimed.lease_epoch, "grace": GRACE}
    assert store.append_and_send(claimed, [new(store, step(step_id="s"))], one, **how) is None
    assert (store.steps_out(row), store.row("r1").last_sequence) == ({"s"}, 2)


# --- taken ------------------------------------------------------------------------------------------------------------


@in_one
@pytest.mark.parametrize("timeout", [None, timedelta(seconds=10), timedelta(hours=1)], ids=["none", "short", "long"])
def test_a_step_is_taken_as_if_it_had_been_found_and_claimed(store, timeout):
    sent(store, "s", queue="gpu", timeout=timeout)
    before = found(store)
    mine = take(store)
    assert mine == replace(before, token=mine.token, deliveries=1, held=True)
    kept = StepExecution.objects.get()
    assert (kept.fencing_token, kept.worker, kept.deliveries, kept.dispatches) == (mine.token, "host:1", 1, 0)
    assert kept.wake_at == min(filter(None, [kept.lease_expires_at, kept.times_out_at]))
    assert (kept.times_out_at is None) is (timeout is None)
    assert store.renew_step(mine, lease=LEASE)
    assert store.close_step(mine, overdue=False)


@in_one
def test_one_that_a_dead_worker_had_is_taken_over(store):
    sent(store, "s")
    old = take(store)
    expired(store)
    mine = take(store)
    assert (mine.deliveries, mine.token == old.token) == (2, False)


PINNED = RuntimeBuildCompatibility("v2", frozenset({"v1"}))


@in_one
@pytest.mark.parametrize(
    ("build", "builds", "taken"),
    [
        (None, None, True),
        ("v1", None, False),
        ("v1", PINNED, True),
        ("v2", PINNED, True),
        ("v3", PINNED, False),
        (None, PINNED, False),
        (None, PINNED.accept_unpinned(), True),
    ],
)
def test_only_where_the_run_s_code_is(store, build, builds, taken):
    sent(store, "s")
    Run.objects.update(build=build)
    assert (take(store, builds=builds) is not None) is taken
    assert StepExecution.objects.get().deliveries == taken


def _paused(store: Any) -> None:
    Run.objects.update(paused_at=store.clock.now())


@in_one
@pytest.mark.parametrize(
    ("prepare", "how"),
    [
        (lambda store: take(store), {}),
        (lambda store: expired(store, "times_out_at"), {}),
        (_paused, {}),
        (lambda store: None, {"attempt": 2}),
        (lambda store: None, {"step_id": "S"}),
        (lambda store: None, {"names": []}),
        (lambda store: None, {"names": ["refund"]}),
    ],
    ids=["held", "timed-out", "paused", "attempt", "id", "no-code", "other-code"],
)
def test_what_is_in_the_way_leaves_it_as_it_is(store, prepare: Callable[[Any], Any], how):
    sent(store, "s", timeout=timedelta(hours=1))
    prepare(store)
    before = StepExecution.objects.values().get()
    assert take(store, **how) is None
    assert StepExecution.objects.values().get() == before


@in_one
def test_it_does_not_wait_for_the_disk(store):
    sent(store, "s")
    with CaptureQueriesContext(connection) as statements:
        assert take(store)
    assert [item["sql"].count("set_config('synchronous_commit'") for item in statements] == [1]


# --- completed --------------------------------------------------------------------------------------------------------


def complete(store: Any, mine: Any, output: object = 7) -> Closed | None:
    closed: Closed | None = store.complete_step(mine, new(store, step(output, mine.step_id), actor="x"))
    return closed


def parked(store: Any, *step_ids: str, awaited: str = "all", **more: Any) -> Any:
    """A run that is parked until its steps are back."""
    sent(store, *step_ids, **more)
    Run.objects.update(steps_awaited=awaited, wake_at=None, wake_reason="steps")
    return store.row("r1")


@in_one
def test_an_output_is_in_the_log_and_the_attempt_is_gone(store):
    row = parked(store, "a", "b")
    first, second = take(store, "a"), take(store, "b")
    assert complete(store, first) == Closed(3, wakes=False)
    waiting = store.row("r1")
    assert (waiting.steps_out, waiting.steps_awaited, waiting.wake_at, waiting.wake_reason) == (1, "all", None, "steps")
    assert store.steps_out(row) == {"b"}
    assert complete(store, second, "\u0000ü") == Closed(4, wakes=True)
    after = store.row("r1")
    assert (after.steps_out, after.steps_awaited, after.wake_reason, after.last_sequence) == (0, "", "runnable", 4)
    assert after.wake_at is not None
    events = store.history("r1", after=2)
    assert [(item.sequence, item.event.output, item.meta) for item in events] == [
        (3, Payload.of(7), {"actor": "x"}),
        (4, Payload.of("\u0000ü"), {"actor": "x"}),
    ]


@in_one
def test_an_earlier_wake_up_is_kept(store):
    parked(store, "s")
    early = store.clock.now() - timedelta(hours=1)
    Run.objects.update(wake_at=early)
    assert complete(store, take(store)) == Closed(3, wakes=True)
    assert store.row("r1").wake_at == early


@in_one
def test_any_of_several_wakes_a_run_that_waits_for_any(store):
    parked(store, "a", "b", awaited="any")
    first, second = take(store, "a"), take(store, "b")
    assert complete(store, first) == Closed(3, wakes=True)
    assert complete(store, second) is None  # the hint is out, and whether there must be another is looked into


@in_one
def test_who_drives_the_run_needs_no_hint(store):
    parked(store, "s")
    driver = store.claim("r1", lease=LEASE)
    assert complete(store, take(store)) == Closed(3, wakes=False)
    after = store.row("r1")
    assert (after.wake_reason, after.wake_at) == ("driving", driver.wake_at)


@in_one
@pytest.mark.parametrize(
    "prepare",
    [
        lambda store: (expired(store), take(store)),
        lambda store: StepExecution.objects.all().delete(),
        lambda store: expired(store, "times_out_at"),
        _paused,
        lambda store: Run.objects.update(status=RunStatus.CANCELLING),
        lambda store: Run.objects.update(status=RunStatus.CANCELLED),
    ],
    ids=["taken-over", "gone", "timed-out", "paused", "cancelling", "ended"],
)
def test_what_is_in_the_way_writes_nothing(store, prepare: Callable[[Any], Any]):
    parked(store, "s", timeout=timedelta(hours=1))
    mine = take(store)
    prepare(store)
    before = (Run.objects.values().get(), list(StepExecution.objects.values()))
    assert complete(store, mine) is None
    assert (Run.objects.values().get(), list(StepExecution.objects.values())) == before
    assert len(store.history("r1")) == 2


# --- sent -------------------------------------------------------------------------------------------------------------


def steps(*step_ids: str, **more: Any) -> list[NewStep]:
    return [NewStep(step_id, 1, "charge", Payload.of({"n": "ü"}), POLICY, SPEC, **more) for step_id in step_ids]


def send(store: Any, row: Any, *step_ids: str, **more: Any) -> Any:
    created = [StepCreated(step_id, "charge", Payload.of({"n": "ü"}), POLICY) for step_id in step_ids]
    events = [new(store, event) for event in (*created, *(StepStarted(step_id, 1) for step_id in step_ids))]
    change = {"steps_out": len(step_ids), "steps_awaited": "all", "lease_expires_at": None}
    epoch = more.pop("epoch", row.lease_epoch)
    return store.append_and_send(row, events, steps(*step_ids, **more), change=change, epoch=epoch, grace=GRACE)


@in_one
@pytest.mark.parametrize("count", [1, 3, 250])
def test_a_decision_and_its_steps_are_one_statement(store, count):
    begin(store)
    row = store.claim("r1", lease=LEASE)
    ids = [f"s{number}" for number in range(count)]
    before = store.clock.now() - timedelta(milliseconds=50)  # the server's clock and our reading of it
    with CaptureQueriesContext(connection) as statements:
        moved = send(store, row, *ids, queue="gpu", timeout=timedelta(milliseconds=1500))
    assert len(statements) == 1
    assert moved == store.row("r1")
    assert (moved.last_sequence, moved.steps_out, moved.lease_expires_at) == (2 + 2 * count, count, None)
    assert [item.type for item in store.history("r1", after=2)] == ["step_created"] * count + ["step_started"] * count
    assert store.steps_out(moved) == set(ids)
    one = found(store, "s0")
    assert (one.step_name, one.input, one.retry, one.spec) == ("charge", Payload.of({"n": "ü"}), POLICY, SPEC)
    assert (one.queue, one.timeout, one.deliveries, one.held, one.late) == (
        "gpu", timedelta(milliseconds=1500), 0, False, False,
    )  # fmt: skip
    wake_at = StepExecution.objects.get(step_id="s0").wake_at
    assert before + GRACE <= wake_at <= store.clock.now() + GRACE + timedelta(milliseconds=50)


@in_one
def test_inputs_that_are_large_together_go_the_long_way(store):
    """One message to the server carries each of them twice, and may have a gigabyte at most."""
    begin(store)
    row = store.claim("r1", lease=LEASE)
    large = Payload.of("x" * 700_000)
    many = [NewStep(f"s{number}", 1, "charge", large, POLICY, SPEC) for number in range(4)]
    events = [new(store, StepCreated(item.step_id, "charge", large, POLICY)) for item in many]
    how: dict[str, Any] = {"change": {}, "epoch": row.lease_epoch, "grace": GRACE}
    assert store.append_and_send(row, events, many, **how) is None
    assert store.row("r1") == row
    assert store.append_and_send(row, events[:2], many[:2], **how) is not None


@in_one
def test_sent_again_after_an_answer_that_was_lost_it_stands_once(store):
    begin(store)
    row = store.claim("r1", lease=LEASE)
    events = [new(store, StepCreated("s", "charge", Payload.of(None), POLICY)), new(store, StepStarted("s", 1))]
    how = {"change": {"steps_out": 1}, "epoch": row.lease_epoch, "grace": GRACE}
    first = store.append_and_send(row, events, steps("s"), **how)
    mine = take(store)
    assert complete(store, mine) is not None
    assert store.append_and_send(row, events, steps("s"), **how) == first
    assert StepExecution.objects.count() == 0
    assert store.row("r1").last_sequence == 5


@in_one
def test_a_refused_decision_sends_nothing(store):
    begin(store)
    row = store.claim("r1", lease=LEASE)
    with pytest.raises(LeaseLostError):
        send(store, row, "s", epoch=row.lease_epoch - 1)
    with pytest.raises(EventConflictError):
        send(store, replace(row, last_sequence=1), "s")
    assert StepExecution.objects.count() == 0
    assert store.row("r1").last_sequence == 2


# --- the epoch --------------------------------------------------------------------------------------------------------


@in_one
def test_an_epoch_that_a_crash_of_the_server_undid_is_not_given_again(store):
    """The claim does not wait for the disk. After the crash the row is as it was before, and somebody else claims."""
    begin(store)
    mine = store.claim("r1", lease=LEASE)
    Run.objects.update(lease_epoch=0, lease_expires_at=None)
    other = store.claim("r1", lease=LEASE)
    assert other.lease_epoch > mine.lease_epoch


@in_one
@pytest.mark.parametrize("dead", [False, True], ids=["free", "taken-over"])
def test_a_lease_that_is_taken_over_waits_for_the_disk(store, dead):
    """A body may run under it before anything else is committed."""
    begin(store)
    if dead:
        store.claim("r1", lease=timedelta(seconds=-1))
    with connection.cursor() as cursor:
        cursor.execute("SET synchronous_commit TO on")
    with store.transaction():
        assert store.claim("r1", lease=LEASE)
        with connection.cursor() as cursor:
            cursor.execute("SHOW synchronous_commit")
            assert cursor.fetchone() == ("on" if dead else "off",)
    connection.close()
