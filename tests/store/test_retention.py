"""Holds, the planner, and deletion (scenarios 130, 131 and 133)."""

from __future__ import annotations

import hashlib
import json
from datetime import UTC, datetime, timedelta

import pytest
from django.db import transaction

from flow_app.engine.retention import Retention, RetentionReport
from flow_app.errors import InvalidTransitionError, RunConflictError, RunNotFoundError, StoreError
from flow_app.models import Event, Hook, Progress, Run, RunLabel, Tombstone
from flow_app.store import DjangoEventStore
from flow_app.store.retention import Hold, Link, RetentionStore
from flow_app.testing.clock import FakeClock
from tests.store.support import DONE, add, begin, done, hook, link, progress, step, try_begin, undone

pytestmark = pytest.mark.django_db(transaction=True)

LATER = datetime(2031, 1, 1, tzinfo=UTC)


@pytest.fixture
def store(clock: FakeClock) -> DjangoEventStore:
    return DjangoEventStore(clock=clock)


@pytest.fixture
def holds() -> RetentionStore:
    return RetentionStore()


@pytest.fixture
def retention(holds: RetentionStore) -> Retention:
    return Retention(holds)


def ended(store, run_id, *events, **options):
    return add(store, begin(store, run_id, *events, **options), done(), **DONE)


def prune(retention, *, before=LATER, run_ids=None):
    return retention.prune(before=before, now=LATER, run_ids=run_ids)


def test_scenario_130_holds(store, retention):
    ended(store, "r1")
    retention.hold("r1", "legal", reason="lawsuit")
    retention.hold("r1", "legal", reason="lawsuit")
    retention.hold("r1", "audit", reason="year end")
    with pytest.raises(RunConflictError):
        retention.hold("r1", "legal", reason="another")
    ended(store, "r2")
    with pytest.raises(RunConflictError):
        retention.hold("r2", "legal", reason="lawsuit")
    with pytest.raises(RunNotFoundError):
        retention.hold("missing", "x", reason="y")
    expected = [Hold("r1", "audit", "year end"), Hold("r1", "legal", "lawsuit")]
    assert Retention(RetentionStore()).holds() == retention.holds("r1") == expected
    assert retention.holds("r2") == []
    assert not retention.release("unknown")
    assert retention.release("legal")
    assert not retention.release("legal")


@pytest.mark.parametrize("texts", [("", "h", "r"), ("r1", " ", "r"), ("r1", "h", "\t"), ("r1", "h" * 201, "r")])
def test_a_hold_refuses_blank_and_overlong_texts(store, retention, texts):
    ended(store, "r1")
    run_id, hold_id, reason = texts
    with pytest.raises(InvalidTransitionError):
        retention.hold(run_id, hold_id, reason=reason)
    assert retention.holds() == []


def test_scenario_131_linked_runs_go_together(store, retention):
    child = ended(store, "child")
    ended(store, "held")
    parent = begin(store, "parent", link("a", "child"), link("b", "held"))
    retention.hold("held", "legal", reason="lawsuit")
    assert prune(retention) == RetentionReport(held=("held",), referenced=("child",), non_terminal=("parent",))
    add(store, parent, done(), **DONE)
    assert prune(retention) == RetentionReport(held=("held",), referenced=("child", "parent"))
    retention.release("legal")
    assert prune(retention) == RetentionReport(deleted=("child", "held", "parent"))
    assert (store.run_ids(), Event.objects.count()) == ([], 0)
    row = begin(store, "r9")
    with pytest.raises(RunConflictError):
        add(store, row, link("late", "child"))
    with pytest.raises(RunNotFoundError):
        add(store, row, link("late", "never"))
    with pytest.raises(RunConflictError):
        add(store, child, step())
    with pytest.raises(RunConflictError):
        try_begin(store, "child")
    with pytest.raises(RunConflictError):
        retention.hold("child", "h", reason="r")
    with pytest.raises(RunNotFoundError):
        store.history("child")


def test_scenario_133_a_tombstone_that_fails_keeps_everything(store, retention):
    for run_id in ("a", "b", "c"):
        ended(store, run_id)
    Tombstone.objects.create(
        run_id="b", run_key=Run.objects.with_id("b").get().run_key, deleted_at=LATER, terminal_sequence=1,
        terminal_event_id="00000000-0000-0000-0000-000000000000", terminal_key="x", history_digest="x",
    )  # fmt: skip
    with pytest.raises(StoreError):
        prune(retention)
    assert store.run_ids() == ["a", "b", "c"]
    assert [row.run_id for row in Tombstone.objects.all()] == ["b"]
    assert Event.objects.count() == 9


def test_a_tombstone_proves_the_history(store, retention):
    ended(store, "r1", hook(), progress("p"), link("job"), labels={"team": "a"})
    history = store.history("r1")
    assert prune(retention).deleted == ("r1",)
    tombstone = Tombstone.objects.get()
    wire = json.dumps([envelope.to_wire() for envelope in history], sort_keys=True, separators=(",", ":"))
    assert tombstone.history_digest == hashlib.sha256(wire.encode()).hexdigest()
    last = history[-1]
    assert (tombstone.run_id, tombstone.terminal_sequence, tombstone.terminal_key) == ("r1", 6, "flow.run.completed")
    assert (tombstone.terminal_event_id, tombstone.deleted_at) == (last.event_id, LATER)
    assert [model.objects.count() for model in (Run, Event, Hook, Progress, RunLabel)] == [0] * 5


def test_only_what_ended_strictly_before_the_cutoff_goes(store, retention, clock):
    ended(store, "old")
    clock.advance(timedelta(microseconds=1))
    ended(store, "recent")
    assert prune(retention, before=clock.now()) == RetentionReport(deleted=("old",), recent_terminal=("recent",))


def test_a_scope_limits_what_is_judged_but_not_what_links_reach(store, retention):
    ended(store, "a")
    ended(store, "b", link("x", "a"))
    begin(store, "open", link("y", "b"))
    ended(store, "free")
    assert prune(retention, run_ids=["a", "free", "unknown"]) == RetentionReport(deleted=("free",), referenced=("a",))
    assert prune(retention, run_ids=["a"]) == RetentionReport(referenced=("a",))


def test_a_run_outside_the_scope_keeps_what_it_is_linked_with(store, retention):
    ended(store, "a")
    ended(store, "b", link("x", "a"))
    assert prune(retention, run_ids=["a"]) == RetentionReport(referenced=("a",))
    assert prune(retention).deleted == ("a", "b")


def test_deletion_checks_again_what_the_plan_saw(store, holds, clock):
    ended(store, "a")
    begin(store, "open", link("x", "a"))
    for run_ids, error in ((["a"], RunConflictError), (["open"], RunConflictError), (["missing"], RunNotFoundError)):
        with pytest.raises(error):
            holds.delete_runs(run_ids, now=clock.now())
    ended(store, "held")
    holds.hold("held", "h", reason="r")
    with pytest.raises(RunConflictError):
        holds.delete_runs(["held"], now=clock.now())
    assert store.run_ids() == ["a", "held", "open"]
    assert holds.links() == [Link("open", "a")]


def test_a_history_that_does_not_end_as_its_row_says_aborts_the_scan(store, retention):
    begin(store)
    Run.objects.update(status="completed")
    with pytest.raises(StoreError, match="does not end that way"):
        prune(retention)


def test_the_caller_may_roll_a_prune_back(store, retention):
    ended(store, "r1")
    with undone(transaction.atomic()):
        assert prune(retention).deleted == ("r1",)
    assert store.run_ids() == ["r1"]
    assert Tombstone.objects.count() == 0
