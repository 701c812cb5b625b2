"""What the hot path costs, in statements, BEGIN and COMMIT included."""

from __future__ import annotations

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from flow_app.store import DjangoEventStore
from tests.store.support import LEASE, add, begin, done, hook, step, try_begin

pytestmark = pytest.mark.django_db(transaction=True)

ON_POSTGRESQL = connection.vendor == "postgresql"
TOGETHER = 1 if ON_POSTGRESQL else 4  # one statement, or BEGIN, two statements and COMMIT


@pytest.fixture
def store() -> DjangoEventStore:
    return DjangoEventStore()


class counted:
    def __init__(self, expected: int) -> None:
        self.expected = expected
        self.captured = CaptureQueriesContext(connection)

    def __enter__(self) -> None:
        connection.ensure_connection()
        self.captured.__enter__()

    def __exit__(self, *error: object) -> None:
        self.captured.__exit__(*error)
        statements = [query["sql"][:200] for query in self.captured.captured_queries]
        if error[0] is None:
            assert len(statements) == self.expected, statements


def test_a_run_of_two_steps_from_start_to_end(store):
    begin(store, "warm")
    store.claim("warm", lease=LEASE)
    with counted(TOGETHER):
        begin(store)
    with counted(TOGETHER):
        row = store.claim("r1", lease=LEASE)
    with counted(1):
        assert len(list(store.load(row))) == 2
    with counted(0):
        now = store.clock.now()
    with counted(TOGETHER):
        row = add(store, row, step(1, "a"), step(2, "b"), epoch=row.lease_epoch)
    with counted(TOGETHER):
        row = add(store, row, step(3, "c"), epoch=row.lease_epoch, lease_expires_at=now + LEASE)
    with counted(1):
        row = store.park(row, change={"lease_expires_at": None, "wake_at": None})
    with counted(TOGETHER):
        add(store, row, done(), status="completed", outcome="completed", finished_at=now)


def test_a_start_that_finds_its_id_taken(store):
    begin(store)
    with counted(2 if ON_POSTGRESQL else 4):  # the insert, and the question whether a tombstone holds the id
        assert try_begin(store) is None


def test_an_append_that_opens_a_hook(store):
    row = begin(store)
    with counted(5):  # BEGIN, UPDATE, INSERT of the event, INSERT of the hook, COMMIT
        add(store, row, hook(), active_hooks=1)


def test_renewing_is_one_statement(store):
    begin(store)
    row = store.claim("r1", lease=LEASE)
    with counted(1):
        assert store.renew(row, lease=LEASE)


def updates() -> tuple[int, int]:
    """How many rows of the run table were updated, and how many of them without touching an index."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_stat_force_next_flush()")
        cursor.execute("SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_user_tables WHERE relname = 'flow_app_run'")
        return cursor.fetchone()


@pytest.mark.skipif(not ON_POSTGRESQL, reason="PostgreSQL's HOT updates")
def test_between_steps_no_index_is_touched(store):
    begin(store)
    row = store.claim("r1", lease=LEASE)
    before = updates()
    for number in range(20):
        until = store.clock.now() + LEASE
        row = add(store, row, step(number), epoch=row.lease_epoch, lease_expires_at=until, lost_leases=0)
    after = updates()
    assert [now - then for now, then in zip(after, before, strict=True)] == [20, 20]
