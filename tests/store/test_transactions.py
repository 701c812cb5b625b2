"""The Django store in its caller's transaction: it joins, and never breaks, what the caller has open."""

from __future__ import annotations

import subprocess
import sys
import threading
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
from django.conf import settings
from django.contrib.auth.models import Group
from django.db import connection, connections, transaction
from django.db.utils import OperationalError

from flow_app.errors import EventConflictError, HookTokenConflictError, RunNotFoundError, StoreError
from flow_app.store import DjangoEventStore
from flow_app.store.transactions import OwnAtomic
from flow_app.testing.clock import FakeClock
from tests.store.support import (
    LEASE,
    add,
    at_once,
    begin,
    hook,
    kinds,
    link,
    progress,
    step,
    try_begin,
    undone,
)

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def store(clock: FakeClock) -> DjangoEventStore:
    return DjangoEventStore(clock=clock)


def test_what_the_caller_rolls_back_leaves_nothing(store):
    with undone(transaction.atomic()):
        row = begin(store, "r1", subject="order:1", labels={"team": "a"})
        add(store, row, step(), hook(), progress("p"), active_hooks=1)
    assert store.run_ids() == []
    assert store.active_hooks() == []


def test_what_the_caller_commits_stands_with_his_own_rows(store):
    with transaction.atomic():
        Group.objects.create(name="approved")
        add(store, begin(store), step(), hook(), active_hooks=1)
    assert (store.row("r1").last_sequence, Group.objects.count()) == (4, 1)


def refusals(store):
    add(store, begin(store, "owner"), hook(), active_hooks=1)
    old = begin(store, "r2")
    add(store, old, step())
    return {
        "id taken": lambda: try_begin(store, "r2"),
        "conflict": lambda: add(store, old, step()),
        "conflict with rows": lambda: add(store, old, hook("h", token="other"), active_hooks=1),
        "token taken": lambda: add(store, store.row("r2"), hook(), active_hooks=1),
        "token taken in a new run": lambda: try_begin(store, "r3", hook(), active_hooks=1),
        "unknown target": lambda: add(store, store.row("r2"), link("child", "nowhere")),
        "unknown run": lambda: store.claim("nowhere", lease=LEASE),
    }


REFUSALS = [
    "id taken", "conflict", "conflict with rows", "token taken", "token taken in a new run", "unknown target",
    "unknown run",
]  # fmt: skip


@pytest.mark.parametrize("name", REFUSALS)
def test_a_refusal_leaves_the_callers_transaction_usable(store, name):
    refusal = refusals(store)[name]
    with transaction.atomic():
        Group.objects.create(name="before")
        with suppress(EventConflictError, HookTokenConflictError, RunNotFoundError):
            assert refusal() is None
        Group.objects.create(name="after")
        begin(store, "r9")
    assert Group.objects.count() == 2
    assert store.run_ids() == ["owner", "r2", "r9"]
    assert store.row("r2").last_sequence == 3


def test_own_transactions_are_told_from_the_callers(store):
    assert not store.in_caller_transaction()
    with store.transaction():
        assert not store.in_caller_transaction()
        with transaction.atomic():
            assert store.in_caller_transaction()
    with transaction.atomic(), store.transaction():
        assert store.in_caller_transaction()
    assert isinstance(store.atomic(), OwnAtomic)


@pytest.mark.django_db(transaction=False)
def test_the_transaction_of_a_test_case_does_not_count(store):
    assert connection.in_atomic_block
    assert not store.in_caller_transaction()
    told = []
    store.on_commit(lambda: told.append(1))
    assert told == [1]
    begin(store)
    with transaction.atomic():
        assert store.in_caller_transaction()


def test_acts_wait_for_the_callers_commit(store):
    told: list[int] = []
    store.on_commit(lambda: told.append(1))
    assert told == [1]
    with transaction.atomic():
        store.on_commit(lambda: 1 / 0)  # logged, and stops nobody
        store.on_commit(lambda: told.append(2))
        assert told == [1]
    assert told == [1, 2]
    with undone(transaction.atomic()):
        store.on_commit(lambda: told.append(3))
    assert told == [1, 2]


def test_an_act_outside_a_transaction_raises_at_the_caller(store):
    with pytest.raises(ZeroDivisionError):
        store.on_commit(lambda: 1 / 0)


def test_what_fails_in_a_joined_transaction_is_undone_alone(store):
    with transaction.atomic():
        Group.objects.create(name="mine")
        with undone(store.transaction()):
            begin(store)
    assert (Group.objects.count(), store.run_ids()) == (1, [])


def test_a_locked_row_makes_others_wait(store):
    if connection.vendor == "sqlite":
        pytest.skip("the transaction itself is the lock")
    begin(store)
    order = []

    def wait_and_append() -> None:
        with store.transaction():
            row = store.lock("r1")
            order.append("second")
            add(store, row, step("second"))
        connections.close_all()

    with store.transaction():
        row = store.lock("r1")
        other = threading.Thread(target=wait_and_append)
        other.start()
        other.join(0.2)
        order.append("first")
        add(store, row, step("first"))
    other.join(30)
    assert order == ["first", "second"]
    assert [item.event.output.value for item in store.load(store.row("r1"), after=2)] == ["first", "second"]


def test_reads_in_a_transaction_see_what_was_committed_since_it_began(store):
    """On MariaDB's REPEATABLE READ too, where a plain read would show the past."""
    if connection.vendor == "sqlite":
        pytest.skip("the transaction itself is the lock")
    if connection.vendor == "mysql":
        connection.isolation_level, before = "repeatable read", connection.isolation_level
        connection.close()
    try:
        begin(store)
        with transaction.atomic():
            assert Group.objects.count() == 0  # fixes the snapshot of a repeatable read
            assert kinds(at_once(lambda: add(store, store.row("r1"), step(), hook(), active_hooks=1))) == ["RunRow"]
            with store.transaction():
                row = store.lock("r1")
                assert row.last_sequence == store.row("r1").last_sequence == 4
                assert [item.sequence for item in store.load(row, after=2)] == [3, 4]
                assert store.hook(row, "approval") is not None
                assert len(store.active_hooks()) == 1
                with pytest.raises(EventConflictError) as refused:
                    add(store, replace(row, last_sequence=2), step())
                assert refused.value.actual == 4
                add(store, row, step("mine"))
        assert store.row("r1").last_sequence == 5
    finally:
        if connection.vendor == "mysql":
            connection.isolation_level = before
        connection.close()


def test_a_transaction_that_the_database_gave_up_is_repeated(store, monkeypatch):
    cause = OperationalError(1213, "database is locked")
    cause.sqlstate = "40P01"  # type: ignore[attr-defined]
    calls = []

    def write() -> str:
        calls.append(1)
        if len(calls) < 3:
            raise OperationalError(*cause.args) from cause
        return "written"

    assert store.attempt(write) == "written"
    calls.clear()
    with transaction.atomic(), pytest.raises(OperationalError):
        store.attempt(write)  # not ours to repeat
    assert len(calls) == 1


def test_other_errors_of_the_database_are_store_errors(store):
    def write() -> None:
        raise OperationalError("gone away")

    with pytest.raises(StoreError, match="gone away"):
        store.attempt(write)


def test_a_store_keeps_to_its_alias(tmp_path):
    """In a process of its own: a test may open the databases of its settings only."""
    script = Path(__file__).with_name("two_databases.py")
    subprocess.run([sys.executable, script, tmp_path], check=True, cwd=settings.BASE_DIR)
