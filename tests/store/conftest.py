from __future__ import annotations

import pytest

from flow_app.core.ports import EventStore
from flow_app.store import DjangoEventStore, InMemoryEventStore
from flow_app.testing.clock import FakeClock


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture(params=["memory", pytest.param("django", marks=pytest.mark.django_db(transaction=True))])
def store(request: pytest.FixtureRequest, clock: FakeClock) -> EventStore:
    """Every store keeps one contract."""
    return InMemoryEventStore(clock=clock) if request.param == "memory" else DjangoEventStore(clock=clock)
