"""Two builds side by side: each run is driven by code that may, or waits for it where everybody can see."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from flow_app.core.ports import WakeReason
from tests.cluster.cluster import Cluster, Member
from tests.cluster.fixtures import both_brokers


class Deployment:
    """Workers of two builds; each also reads the queue of the ticks."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.routes = {build: f"{cluster.queue}.{build}" for build in ("v1", "v2")}
        for queue in self.routes.values():
            cluster.broker.also(queue)

    def flow(self, build: str, *, routed: tuple[str, ...] = ("v1", "v2")) -> dict[str, Any]:
        routes = {name: self.routes[name] for name in routed}
        return {"BUILD": {"current": build, "routes": routes, "on_missing_route": "skip"}}

    def engine(self, build: str, **kwargs: Any) -> Any:
        return self.cluster.engine_with({**self.cluster.flow, **self.flow(build, **kwargs)})

    def start_worker(self, build: str, **kwargs: Any) -> Member:
        queues = f"{self.cluster.queue},{self.routes[build]}"
        return self.cluster.start_worker(queues=queues, **self.flow(build, **kwargs))

    def builds_of(self, run_id: str) -> set[str]:
        return {entry.build for entry in self.cluster.ledger.entries("begin") if entry.run_id == run_id}


@pytest.fixture
def deployment(cluster: Cluster) -> Deployment:
    return Deployment(cluster)


@both_brokers
def test_old_workers_are_drained_while_new_ones_start(cluster: Cluster, deployment: Deployment) -> None:
    old_worker = deployment.start_worker("v1")
    cluster.start_beat(**deployment.flow("v1"))
    old, new = deployment.engine("v1"), deployment.engine("v2")
    old.start("cluster.chain", {"steps": 3, "hold": "go"}, run_id="old-busy")
    old.start("cluster.approval", {}, run_id="old-waiting")
    cluster.wait_for_body("s0")
    cluster.wait_until(lambda: bool(cluster.engine.list_active_hooks()), "the question")

    deployment.start_worker("v2")
    old_worker.terminate()
    cluster.release("go")
    cluster.wait_until(lambda: not old_worker.is_alive, "the old worker's end")
    new.start("cluster.batch", {"steps": 3}, run_id="new")
    cluster.wait_for_end("new")
    assert new.resume_hook("old-waiting", "answer", "yes")  # kept for the build that may go on with it
    new.start("cluster.chain", {"steps": 1}, run_id="newer")
    cluster.wait_for_end("newer")
    assert not cluster.has_ended("old-waiting")
    assert cluster.engine.row("old-waiting").build == "v1"

    deployment.start_worker("v1")  # there was something left to do
    cluster.wait_for_end("old-busy", "old-waiting")
    assert deployment.builds_of("old-busy") == deployment.builds_of("old-waiting") == {"v1"}
    assert deployment.builds_of("new") == deployment.builds_of("newer") == {"v2"}
    assert set(cluster.ledger.bodies().values()) == {1}


def test_without_a_route_nothing_is_sent_and_the_run_says_what_it_waits_for(
    cluster: Cluster, deployment: Deployment
) -> None:
    due = cluster.engine.store.clock.now() + timedelta(seconds=1)
    old = deployment.engine("v1")
    old.start("cluster.timer", {"at": due}, run_id="old")
    cluster.broker.flush()
    deployment.start_worker("v2", routed=("v2",))
    cluster.start_beat(**deployment.flow("v2", routed=("v2",)))
    new = deployment.engine("v2", routed=("v2",))
    cluster.wait_until(lambda: cluster.engine.row("old").wake_reason == WakeReason.NO_WORKER, "the reason")
    new.start("cluster.timer", {"at": due}, run_id="new")
    cluster.wait_for_end("new")
    row = cluster.engine.row("old")
    assert (row.build, row.last_sequence, row.blocked_code) == ("v1", 2, "")
    assert cluster.broker.waiting(deployment.routes["v1"]) == 0

    deployment.start_worker("v1")
    cluster.wait_for_end("old")
    assert deployment.builds_of("old") == {"v1"}


def test_workers_that_are_replaced_one_after_the_other_repeat_nothing(cluster: Cluster) -> None:
    cluster.start(workers=2)
    chains = [cluster.engine.start("cluster.chain", {"steps": 6, "pause": 0.1}, run_id=f"c{i}") for i in range(8)]
    batches = [cluster.engine.start("cluster.batch", {"steps": 8, "pause": 0.1}, run_id=f"b{i}") for i in range(4)]
    for _ in range(4):
        begun = len(cluster.ledger.entries("begin"))
        cluster.wait_until(lambda: len(cluster.ledger.entries("begin")) > begun or cluster.has_ended(*chains))  # noqa: B023
        old = cluster.workers[0]
        cluster.start_worker()
        cluster.end(old)
    cluster.wait_for_end(*chains, *batches)
    assert set(cluster.ledger.bodies().values()) == {1}
    rows = [cluster.engine.row(run_id) for run_id in (*chains, *batches)]
    assert not any(row.lost_leases for row in rows)
