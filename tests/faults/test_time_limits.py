"""A body that hangs in a real worker: its attempt ends on time, and what it says later is refused."""

from __future__ import annotations

import pytest

from tests.cluster.cluster import Cluster


@pytest.mark.parametrize("pool", ["prefork", "threads", "solo"])
def test_a_body_that_hangs_holds_up_neither_its_run_nor_its_worker(cluster: Cluster, pool: str) -> None:
    cluster.start_worker(pool=pool, concurrency=1)
    cluster.engine.start("cluster.hangs", {"hold": "go"}, run_id="r")
    cluster.wait_for_end("r")
    assert cluster.engine.snapshot("r").output == "timed out"
    assert cluster.ledger.entries("end") == []
    before = cluster.types("r")
    cluster.release("go")
    cluster.wait_until(lambda: len(cluster.ledger.entries("end")) == 1, "the end of the body")
    assert cluster.types("r") == before
    assert set(cluster.ledger.bodies().values()) == {1}


def test_when_the_worker_is_dead_another_ends_the_attempt(cluster: Cluster) -> None:
    victim = cluster.start_worker(pool="prefork", concurrency=1)
    cluster.engine.start("cluster.hangs", {"hold": "go"}, run_id="r")
    cluster.wait_until(lambda: bool(cluster.ledger.entries("begin")), "the body")
    victim.kill()
    cluster.start(workers=1)
    cluster.wait_for_end("r")
    assert cluster.engine.snapshot("r").output == "timed out"
    assert set(cluster.ledger.bodies().values()) == {1}
