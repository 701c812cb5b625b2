"""The clocks."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta

import pytest
from django.db import OperationalError, connection
from django.test.utils import CaptureQueriesContext

from flow_app.errors import InvalidTransitionError
from flow_app.store import DatabaseClock, DjangoEventStore, SystemClock
from flow_app.testing.clock import FakeClock
from tests.store.support import begin

NEAR = timedelta(minutes=5)
on_a_server = pytest.mark.skipif(connection.vendor == "sqlite", reason="SQLite uses the application's clock")


def test_a_fake_clock_moves_only_when_told():
    clock = FakeClock()
    start = clock.now()
    clock.sleep(1.5)
    assert clock.advance(timedelta(seconds=1)) == clock.now() == start + timedelta(seconds=2.5)
    assert clock.monotonic() == 2.5
    clock.move_to(start)
    assert (clock.now(), clock.monotonic()) == (start, 2.5)
    with pytest.raises(InvalidTransitionError):
        FakeClock(datetime(2030, 1, 1))


def test_each_database_has_its_clock():
    clock = DjangoEventStore().clock
    assert type(clock) is (SystemClock if connection.vendor == "sqlite" else DatabaseClock)
    assert clock.in_database is (connection.vendor != "sqlite")


@on_a_server
@pytest.mark.django_db
def test_the_database_is_asked_once_and_again_when_the_reading_is_old(monkeypatch):
    clock = DatabaseClock("default")
    with CaptureQueriesContext(
        connection,
    ) as queries:
        first = clock.now()
        assert clock.now() >= first
    assert len(queries) == 1
    assert abs(first - datetime.now(UTC)) < NEAR
    later = time.monotonic() + 301
    monkeypatch.setattr(time, "monotonic", lambda: later)
    with CaptureQueriesContext(connection) as queries:
        clock.now()
    assert len(queries) == 1


@on_a_server
@pytest.mark.django_db
def test_the_last_reading_goes_on_while_the_database_does_not_answer(monkeypatch, caplog):
    clock = DatabaseClock("default")
    first = clock.now()
    later = time.monotonic() + 301
    monkeypatch.setattr(time, "monotonic", lambda: later)

    def refuse(*args):
        raise OperationalError("server closed the connection unexpectedly")

    with connection.execute_wrapper(refuse):
        assert timedelta(seconds=300) < clock.now() - first < timedelta(seconds=310)
        clock.now()
    assert caplog.text.count("could not be read") == 1  # asked again when this one is old


@on_a_server
@pytest.mark.django_db
def test_a_claim_sets_the_clock():
    store = DjangoEventStore()
    begin(store, wake_at=None)
    store.clock.calibrate(datetime(2000, 1, 1, tzinfo=UTC))
    assert store.clock.now().year == 2000
    with CaptureQueriesContext(connection) as queries:
        row = store.claim("r1", lease=timedelta(seconds=30))
        asked = len(queries)
        now = store.clock.now()
        assert len(queries) == asked
    assert timedelta() <= now - (row.lease_expires_at - timedelta(seconds=30)) < NEAR
    assert abs(now - datetime.now(UTC)) < NEAR


@on_a_server
@pytest.mark.django_db(transaction=True)
def test_leases_and_due_times_go_by_the_databases_clock():
    store = DjangoEventStore()
    row = begin(store)
    first = store.claim("r1", lease=timedelta(seconds=-1))
    row = store.claim("r1", lease=timedelta(hours=1))
    assert row.lease_epoch > first.lease_epoch
    assert row.lost_leases == 1
    assert store.claim("r1", lease=timedelta(hours=1)) is None
    begin(store, "due", wake_at=store.clock.now() - timedelta(seconds=1))
    begin(store, "future", wake_at=store.clock.now() + timedelta(hours=1))
    with store.transaction():
        assert [due.run_id for due in store.take_due(limit=9, grace=timedelta(seconds=30))] == ["due"]
    wait = store.row("due").wake_at - store.clock.now()
    assert timedelta(seconds=20) < wait < timedelta(seconds=31)  # the reading is as old as its way here
