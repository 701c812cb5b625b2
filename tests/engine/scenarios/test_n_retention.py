"""Scenarios 130 to 133 through the engine. (Deletion itself is tested with the store.)"""

from __future__ import annotations

from datetime import timedelta

import pytest

from flow_app import ChildOperationReference, get_engine, workflow
from flow_app.engine.retention import RetentionReport
from flow_app.errors import (
    ConfigurationError,
    InvalidTransitionError,
    RunConflictError,
    RunNotFoundError,
    StoreError,
)
from flow_app.models import Tombstone
from flow_app.store import DjangoEventStore, InMemoryEventStore
from flow_app.store.retention import RetentionStore
from tests.engine.logbook import inline, story

pytestmark = pytest.mark.django_db(transaction=True)

DAY = timedelta(days=1)


@pytest.fixture
def engine(clock):
    return inline(DjangoEventStore(clock=clock), retention=RetentionStore())


@pytest.fixture(autouse=True)
def flow():
    @workflow("flow")
    def flow(ctx):
        return ctx.create_hook("h") if not ctx.hook_received("h") else ctx.complete()

    return flow


@pytest.fixture
def ended(engine, clock):
    def ended(*run_ids):
        for run_id in run_ids:
            engine.start("flow", run_id=run_id)
            engine.force_cancel(run_id)
        clock.advance(DAY)

    return ended


def test_scenario_130_holds(engine, ended):
    ended("r1")
    engine.hold("r1", "legal", "lawsuit")
    engine.hold("r1", "legal", "lawsuit")
    engine.hold("r1", "audit", "year end")
    with pytest.raises(RunConflictError):
        engine.hold("r1", "legal", "another reason")
    with pytest.raises(RunNotFoundError):
        engine.hold("r9", "legal", "lawsuit")
    for blank in (("r1", " ", "why"), ("r1", "id", "")):
        with pytest.raises(InvalidTransitionError):
            engine.hold(*blank)
    reopened = inline(DjangoEventStore(), retention=RetentionStore())
    assert [(hold.hold_id, hold.reason) for hold in reopened.list_holds("r1")] == [
        ("audit", "year end"),
        ("legal", "lawsuit"),
    ]
    assert engine.release_hold("unknown") is False
    assert engine.release_hold("legal") is True
    assert [hold.hold_id for hold in engine.list_holds()] == ["audit"]


def test_scenario_131_linked_runs_go_together_once_nothing_keeps_them(engine, ended, clock):
    ended("child", "held")
    engine.start("flow", run_id="parent")
    for target in ("child", "held"):
        engine.link_child_operation("parent", ChildOperationReference(target, "flow", target, flow_run_id=target))
    engine.hold("held", "legal", "lawsuit")
    assert engine.prune(clock.now()) == RetentionReport(held=("held",), referenced=("child",), non_terminal=("parent",))

    engine.release_hold("legal")
    engine.force_cancel("parent")
    assert engine.prune(clock.now()) == RetentionReport(referenced=("child", "held"), recent_terminal=("parent",))
    clock.advance(DAY)
    assert engine.preview_prune(clock.now()).deleted == ("child", "held", "parent")
    assert engine.prune(clock.now()) == RetentionReport(deleted=("child", "held", "parent"))
    assert engine.list_run_ids() == []

    engine.start("flow", run_id="next")
    with pytest.raises(RunConflictError):
        engine.link_child_operation("next", ChildOperationReference("c", "flow", "1", flow_run_id="child"))
    with pytest.raises(RunNotFoundError):
        engine.link_child_operation("next", ChildOperationReference("c", "flow", "1", flow_run_id="never"))
    assert story(engine, "next") == "C S hc:h"


def test_a_deleted_run_is_gone_and_its_id_is_not_used_again(engine, ended, clock):
    ended("r1")
    engine.prune(clock.now())
    for read in (engine.snapshot, engine.history, engine.drive):
        with pytest.raises(RunNotFoundError):
            read("r1")
    with pytest.raises(RunConflictError):
        engine.start("flow", run_id="r1")
    with pytest.raises(RunConflictError):
        engine.hold("r1", "legal", "lawsuit")
    assert Tombstone.objects.get().run_id == "r1"


def test_a_scope_limits_what_is_pruned(engine, ended, clock):
    ended("r1", "r2")
    assert engine.prune(clock.now(), run_ids=["r2"]).deleted == ("r2",)
    assert engine.list_run_ids() == ["r1"]


def test_scenario_133_a_tombstone_that_fails_keeps_everything(engine, ended, clock, monkeypatch):
    from django.db import DatabaseError

    ended("r1", "r2")
    bury, buried = RetentionStore._bury, []

    def failing(self, run_id, key, *, now):
        if buried:
            raise DatabaseError("disk full")
        buried.append(run_id)
        bury(self, run_id, key, now=now)

    monkeypatch.setattr(RetentionStore, "_bury", failing)
    with pytest.raises(StoreError):
        engine.prune(clock.now())
    assert engine.list_run_ids() == ["r1", "r2"]
    assert story(engine, "r1") == "C S hc:h RX"
    assert not Tombstone.objects.exists()


def test_the_projects_engine_has_retention_and_one_in_memory_says_that_it_has_none(clock):
    assert get_engine().list_holds() == []
    with pytest.raises(ConfigurationError):
        inline(InMemoryEventStore(clock=clock)).prune(clock.now())
