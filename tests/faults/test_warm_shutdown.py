"""A worker that is asked to stop ends the body at hand, hands its run on, and takes up nothing more."""

from __future__ import annotations

import pytest

from tests.cluster.cluster import Cluster


@pytest.mark.parametrize("pool", ["prefork", "threads", "solo"])
def test_a_drive_stops_at_its_next_turn(cluster: Cluster, pool: str) -> None:
    worker = cluster.start_worker(pool=pool, concurrency=1)
    cluster.engine.start("cluster.chain", {"steps": 5, "hold": "go"}, run_id="r")
    cluster.wait_for_body("s0")
    worker.terminate()
    cluster.wait_until(lambda: "shutdown" in worker.log.read_text(), "word of the shutdown")
    cluster.release("go")
    cluster.wait_until(lambda: not worker.is_alive, "the end of the worker")
    row = cluster.engine.row("r")
    assert cluster.ledger.bodies() == {("r", "s0", 1): 1}
    assert (row.lease_expires_at, row.wake_reason, row.lost_leases) == (None, "dispatched", 0)
    assert cluster.types("r").count("step_completed") == 1
    cluster.start_worker(pool=pool)
    cluster.wait_for_end("r")
    assert set(cluster.ledger.bodies().values()) == {1}


def test_a_step_that_travels_ends_and_is_recorded(cluster: Cluster) -> None:
    worker = cluster.start_worker(pool="prefork", concurrency=3)
    cluster.engine.start("cluster.batch", {"steps": 3, "hold": "go"}, run_id="r")
    cluster.wait_until(lambda: len(cluster.ledger.entries("begin")) == 3, "the batch")
    worker.terminate()
    cluster.wait_until(lambda: "shutdown" in worker.log.read_text(), "word of the shutdown")
    cluster.release("go")
    cluster.wait_until(lambda: not worker.is_alive, "the end of the worker")
    assert cluster.types("r").count("step_completed") == 3
    assert not cluster.has_ended("r")
    cluster.start(workers=1)
    cluster.wait_for_end("r")
    assert set(cluster.ledger.bodies().values()) == {1}
