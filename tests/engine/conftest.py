from __future__ import annotations

from collections.abc import Iterator

import pytest

from flow_app.authoring import registry
from flow_app.authoring.runtime import RegistryRuntime
from flow_app.core.ports import EventStore
from flow_app.dispatch import InlineDispatcher
from flow_app.engine import FlowEngine
from flow_app.store import DjangoEventStore, InMemoryEventStore
from flow_app.testing import FakeClock


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture(autouse=True)
def registered() -> Iterator[None]:
    """What a test registers is forgotten after it."""
    with registry.workflows.isolated(), registry.steps.isolated():
        yield


@pytest.fixture(params=["memory", pytest.param("django", marks=pytest.mark.django_db(transaction=True))])
def store(request: pytest.FixtureRequest, clock: FakeClock) -> EventStore:
    return InMemoryEventStore(clock=clock) if request.param == "memory" else DjangoEventStore(clock=clock)


@pytest.fixture
def engine(store: EventStore) -> FlowEngine:
    """An engine that drives inside the call: start and resume return when the run has stopped."""
    return inline_engine(store)


def inline_engine(store: EventStore, **kwargs: object) -> FlowEngine:
    made = FlowEngine(store, RegistryRuntime(), secrets=("secret",), **kwargs)  # type: ignore[arg-type]
    made.services.dispatcher = InlineDispatcher(made)
    return made
