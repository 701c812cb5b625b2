"""Messages that come too often, too late, or not at all."""

from __future__ import annotations

from datetime import timedelta

import pytest

from flow_app.errors import HookConflictError
from tests.cluster.cluster import Cluster
from tests.cluster.fixtures import both_brokers
from tests.cluster.proxy import Proxy


@both_brokers
def test_every_message_delivered_six_times(cluster: Cluster) -> None:
    cluster.flow["DISPATCHER"] = "tests.cluster.sixfold.SixfoldDispatcher"
    cluster.engine = cluster.engine_with(cluster.flow)
    cluster.start(workers=2, concurrency=6)
    run_ids = [cluster.engine.start("cluster.chain", {"steps": 3, "pause": 0.05}, run_id=f"c{i}") for i in range(10)]
    run_ids += [cluster.engine.start("cluster.batch", {"steps": 4, "pause": 0.05}, run_id=f"b{i}") for i in range(5)]
    cluster.wait_for_end(*run_ids)
    bodies = cluster.ledger.bodies()
    assert len(bodies) == 10 * 3 + 5 * 5
    assert set(bodies.values()) == {1}
    for run_id in run_ids:
        settled = [item.data["step_id"] for item in cluster.engine.history(run_id) if item.type == "step_completed"]
        assert len(settled) == len(set(settled))
        assert cluster.types(run_id)[-1] == "run_completed"


def test_a_waiting_run_outlives_everything(cluster: Cluster) -> None:
    """Longer than a lease and a grace, with every process replaced: nothing is repeated, and it holds nothing."""
    cluster.start(workers=2)
    far = cluster.engine.store.clock.now() + timedelta(days=1)
    cluster.engine.start("cluster.approval", {}, run_id="hook")
    cluster.engine.start("cluster.timer", {"at": far}, run_id="timer")
    cluster.wait_until(lambda: bool(cluster.engine.list_active_hooks()), "the question")
    cluster.wait_until(lambda: "wait_created" in cluster.types("timer"), "the timer")
    cluster.end(*cluster.workers, *cluster.beats)
    cluster.broker.flush()
    before = {run_id: cluster.types(run_id) for run_id in ("hook", "timer")}
    cluster.start(workers=2)
    # Work that needs a lease's expiry and a tick to get done: so long the others must have waited.
    cluster.start_worker().kill()
    ticks = cluster.engine.store.clock.now() + 2 * cluster.engine.services.options.lease
    cluster.engine.start("cluster.timer", {"at": ticks}, run_id="later")
    cluster.wait_for_end("later")
    for run_id, types in before.items():
        assert cluster.types(run_id) == types
        row = cluster.engine.row(run_id)
        assert (row.lease_expires_at, row.lost_leases, row.blocked_code) == (None, 0, "")
    assert cluster.engine.resume_hook("hook", "answer", None)
    assert cluster.engine.resume_wait("timer", "pause")
    cluster.wait_for_end("hook", "timer")
    assert set(cluster.ledger.bodies().values()) == {1}


def test_a_timer_that_comes_due_while_all_are_down_fires_once(cluster: Cluster) -> None:
    cluster.start(workers=1)
    due = cluster.engine.store.clock.now() + timedelta(seconds=4)
    cluster.engine.start("cluster.timer", {"at": due}, run_id="r")
    cluster.wait_until(lambda: "wait_created" in cluster.types("r"), "the timer")
    for member in cluster.members:
        member.kill()
    cluster.wait_until(lambda: cluster.engine.store.clock.now() > due + timedelta(seconds=1), "the time")
    assert cluster.types("r").count("wait_completed") == 0
    cluster.start(workers=2)
    cluster.start_beat()
    cluster.wait_for_end("r")
    assert cluster.types("r").count("wait_completed") == 1
    assert cluster.ledger.bodies() == {("r", "after", 1): 1}


@both_brokers
def test_a_broker_that_is_down_costs_the_caller_nothing(cluster: Cluster) -> None:
    """At the start and at the answer. The run goes on when the broker is back."""
    working = cluster.app.conf.broker_url
    cluster.use_broker(working.replace(":6379", ":1").replace(":5672", ":1"))
    assert cluster.engine.start("cluster.approval", {}, run_id="r") == "r"
    cluster.start(workers=1)  # theirs is up
    cluster.wait_until(lambda: bool(cluster.engine.list_active_hooks()), "the question")
    assert cluster.engine.resume_hook("r", "answer", "yes") is True
    with pytest.raises(HookConflictError):
        cluster.engine.resume_hook("r", "answer", "no")
    assert cluster.engine.resume_hook("r", "answer", "yes") is False
    cluster.wait_for_end("r")
    assert cluster.engine.snapshot("r").output == "yes"
    assert cluster.types("r").count("hook_received") == 1


@both_brokers
def test_workers_whose_broker_goes_away_and_comes_back(cluster: Cluster) -> None:
    with Proxy.to(cluster.broker.url) as proxy:
        direct, cluster.broker.url = cluster.broker.url, proxy.url
        cluster.start(workers=2)
        cluster.broker.url = direct
        cluster.engine.start("cluster.chain", {"steps": 1}, run_id="before")
        cluster.wait_for_end("before")
        proxy.cut()
        run_ids = [cluster.engine.start("cluster.chain", {"steps": 2}, run_id=f"r{index}") for index in range(5)]
        cluster.broker.flush()
        proxy.mend()
        cluster.wait_for_end(*run_ids)
    assert set(cluster.ledger.bodies().values()) == {1}
