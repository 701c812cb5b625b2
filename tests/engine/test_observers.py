from __future__ import annotations

from typing import Any

import pytest
from django.db import connection, transaction

from flow_app import workflow
from flow_app.authoring.runtime import RegistryRuntime
from flow_app.core.events import EventEnvelope
from flow_app.core.ports import EventStore
from flow_app.dispatch import InlineDispatcher
from flow_app.engine import FlowEngine
from flow_app.signals import event_recorded
from flow_app.store import DjangoEventStore


class Watcher:
    """Notes what it is told, and whether that was committed by then."""

    def __init__(self, store: EventStore) -> None:
        self.store = store
        self.seen: list[str] = []
        self.committed: list[bool] = []

    def on_event(self, envelope: EventEnvelope) -> None:
        self.seen.append(envelope.type)
        outside = not connection.in_atomic_block
        self.committed.append(outside and self.store.row(envelope.run_id).last_sequence >= envelope.sequence)


def _engine(store: EventStore, *observers: Any) -> FlowEngine:
    engine = FlowEngine(store, RegistryRuntime(), secrets=("secret",), observers=observers)
    engine.services.dispatcher = InlineDispatcher(engine)
    return engine


def _approval() -> None:
    @workflow("approval")
    def approval(ctx: Any) -> Any:
        return ctx.complete(ctx.hook_payload("h")) if ctx.hook_received("h") else ctx.create_hook("h")


def test_every_verb_tells_observers_after_its_commit_and_in_order(store: EventStore) -> None:
    _approval()
    watcher = Watcher(store)
    engine = _engine(store, watcher)
    run_id = engine.start("approval")
    engine.resume_hook(run_id, "h", 1)
    other = engine.start("approval")
    engine.force_cancel(other)
    assert watcher.seen == [
        *[envelope.type for envelope in engine.history(run_id)],
        *[envelope.type for envelope in engine.history(other)],
    ]
    assert all(watcher.committed)


@pytest.mark.django_db(transaction=True)
def test_what_is_rolled_back_is_told_to_nobody() -> None:
    _approval()
    store = DjangoEventStore()
    watcher = Watcher(store)
    engine = _engine(store, watcher)
    with transaction.atomic():
        engine.start("approval")
        transaction.set_rollback(True)
    assert watcher.seen == []
    with transaction.atomic():
        engine.start("approval")
        assert watcher.seen == []
    assert watcher.seen == ["run_created", "run_started", "hook_created"]
    assert all(watcher.committed)


def test_an_observer_or_receiver_that_fails_changes_nothing(store: EventStore) -> None:
    _approval()

    class Broken:
        def on_event(self, envelope: EventEnvelope) -> None:
            raise RuntimeError("observer")

    def broken(**kwargs: Any) -> None:
        raise RuntimeError("receiver")

    watcher = Watcher(store)
    engine = _engine(store, Broken(), watcher)
    event_recorded.connect(broken)
    try:
        run_id = engine.start("approval")
        engine.resume_hook(run_id, "h", 1)
    finally:
        event_recorded.disconnect(broken)
    assert engine.snapshot(run_id).status == "completed"
    assert watcher.seen == [envelope.type for envelope in engine.history(run_id)]
