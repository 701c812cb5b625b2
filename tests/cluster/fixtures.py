from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cluster import workflows
from tests.cluster.cluster import Cluster, Nursery
from tests.cluster.services import BROKERS, Broker, require


@pytest.fixture(scope="session")
def nursery() -> Iterator[Nursery]:
    made = Nursery()
    yield made
    made.close()


@pytest.fixture
def queue_name() -> str:
    return f"flow-test-{uuid.uuid4().hex[:12]}"


@pytest.fixture(params=["redis"])
def broker(request: pytest.FixtureRequest, queue_name: str) -> Broker:
    """Redis, where a test does not say otherwise."""
    made: Broker = BROKERS[request.param](queue_name)
    require(made.url)
    return made


@pytest.fixture
def make_cluster(
    nursery: Nursery, broker: Broker, queue_name: str, tmp_path: Path, transactional_db: None
) -> Iterator[Callable[..., Cluster]]:
    made: list[Cluster] = []

    def make(**kwargs: Any) -> Cluster:
        made.append(Cluster(nursery, broker, tmp_path, queue_name, **kwargs))
        return made[-1]

    yield make
    for cluster in made:
        cluster.close()


@pytest.fixture
def cluster(make_cluster: Callable[..., Cluster]) -> Cluster:
    return make_cluster()


assert workflows  # registered once for the session, and never forgotten

both_brokers = pytest.mark.parametrize("broker", sorted(BROKERS), indirect=True)
