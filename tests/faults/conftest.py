from __future__ import annotations

from tests.cluster.fixtures import broker, cluster, make_cluster, nursery, queue_name
from tests.engine.conftest import clock, registered, store

__all__ = ["broker", "clock", "cluster", "make_cluster", "nursery", "queue_name", "registered", "store"]
