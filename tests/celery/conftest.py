from __future__ import annotations

from tests.cluster.fixtures import broker, cluster, make_cluster, nursery, queue_name

__all__ = ["broker", "cluster", "make_cluster", "nursery", "queue_name"]
