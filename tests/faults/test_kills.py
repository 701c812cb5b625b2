"""Workers, brokers and connections that go away in the middle of something, for real; everything recovers by itself."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable

import pytest
from django.db import connection

from tests.cluster.cluster import Cluster
from tests.cluster.fixtures import both_brokers


def check(cluster: Cluster, *run_ids: str, kills: int = 0, at_once: int = 1) -> None:
    """The log of each run is whole, and no body ran oftener than the kills explain."""
    for run_id in run_ids:
        history = cluster.engine.history(run_id)
        assert [item.sequence for item in history] == list(range(1, len(history) + 1))
        assert cluster.engine.snapshot(run_id).status.is_terminal
        outcomes = [
            (item.data["step_id"], item.data.get("attempt")) for item in history if item.type == "step_completed"
        ]
        assert len(outcomes) == len(set(outcomes))
        row = cluster.engine.row(run_id)
        assert (row.lease_expires_at, row.wake_at) == (None, None)
    bodies = cluster.ledger.bodies()
    assert bodies.total() - len(bodies) <= kills * at_once
    assert not cluster.ledger.overlaps()


@both_brokers
@pytest.mark.parametrize("pool", ["prefork", "threads"])
def test_a_worker_that_is_killed_in_a_step(cluster: Cluster, pool: str) -> None:
    victim = cluster.start_worker(pool=pool, concurrency=1)
    cluster.engine.start("cluster.chain", {"steps": 3, "hold": "go"}, run_id="r")
    cluster.wait_for_body("s0")
    victim.kill()
    cluster.start(workers=1)
    cluster.wait_for_body("s0", times=2)
    cluster.release("go")
    cluster.wait_for_end("r")
    check(cluster, "r", kills=1)
    assert cluster.ledger.bodies() == {("r", "s0", 1): 2, ("r", "s1", 1): 1, ("r", "s2", 1): 1}


def test_a_child_of_a_worker_that_is_killed_in_a_step(cluster: Cluster) -> None:
    """Celery takes the message for done; the lease knows better."""
    cluster.start(workers=1, pool="prefork", concurrency=2)
    cluster.engine.start("cluster.chain", {"steps": 2, "hold": "go"}, run_id="r")
    cluster.wait_for_body("s0")
    os.kill(cluster.ledger.entries("begin")[0].process, signal.SIGKILL)
    cluster.wait_for_body("s0", times=2)
    cluster.release("go")
    cluster.wait_for_end("r")
    check(cluster, "r", kills=1)


@pytest.mark.every_database
def test_a_worker_that_is_killed_in_a_batch(cluster: Cluster) -> None:
    victim = cluster.start_worker(concurrency=4)
    cluster.engine.start("cluster.batch", {"steps": 4, "hold": "go"}, run_id="r")
    cluster.wait_until(lambda: len(cluster.ledger.entries("begin")) == 4, "the batch")
    victim.kill()
    cluster.start(workers=2)
    cluster.wait_until(lambda: len(cluster.ledger.entries("begin")) == 8, "the second delivery")
    cluster.release("go")
    cluster.wait_for_end("r")
    check(cluster, "r", kills=1, at_once=4)
    assert cluster.types("r").count("step_completed") == 5


@pytest.mark.parametrize(
    "call",
    ["before-claim", "after-claim", "before-append", "after-append", "before-park", "after-park"],
)
def test_a_worker_that_is_killed_around_a_write(cluster: Cluster, call: str) -> None:
    cluster.die_at(call)
    cluster.start(workers=2)
    cluster.engine.start("cluster.approval", {}, run_id="r")
    cluster.wait_until(lambda: cluster.died_at(call), "the death")
    cluster.start_worker()
    cluster.wait_until(lambda: bool(cluster.engine.list_active_hooks()), "the question")
    assert cluster.engine.resume_hook("r", "answer", "yes")
    cluster.wait_for_end("r")
    assert cluster.engine.snapshot("r").output == "yes"
    check(cluster, "r", kills=1)


@pytest.mark.every_database
@pytest.mark.parametrize(
    "call",
    ["before-step-hint", "before-take-step", "after-take-step", "before-complete-step", "after-complete-step"],
)
def test_a_worker_that_is_killed_around_a_step_that_travels(cluster: Cluster, call: str) -> None:
    cluster.die_at(call)
    cluster.start(workers=2)
    cluster.engine.start("cluster.batch", {"steps": 4}, run_id="r")
    cluster.wait_until(lambda: cluster.died_at(call), "the death")
    cluster.start_worker()
    cluster.wait_for_end("r")
    assert cluster.types("r").count("step_completed") == 5
    check(cluster, "r", kills=1, at_once=4)


@pytest.mark.parametrize("call", ["before-tick", "in-take-due", "in-take-due-steps", "after-tick"])
def test_whoever_ticks_is_killed_in_the_middle(cluster: Cluster, call: str) -> None:
    """The broker loses the first hints, so that only a tick can help."""
    run_ids = [cluster.engine.start("cluster.chain", {"steps": 1}, run_id=f"r{index}") for index in range(5)]
    cluster.broker.flush()
    cluster.die_at(call)
    cluster.start(workers=1)
    cluster.wait_until(lambda: cluster.died_at(call), "the death")
    cluster.start_worker()
    cluster.wait_for_end(*run_ids)
    check(cluster, *run_ids, kills=1)


def test_a_beat_that_is_killed_is_missed_and_replaced(cluster: Cluster) -> None:
    cluster.start(workers=1)
    at = cluster.engine.store.clock.now()
    cluster.engine.start("cluster.timer", {"at": at}, run_id="first")
    cluster.wait_for_end("first")
    cluster.beats[0].kill()
    cluster.engine.start("cluster.timer", {"at": at}, run_id="second")
    cluster.start_beat()
    cluster.start_beat()  # one too many does no harm
    cluster.wait_for_end("second")
    check(cluster, "first", "second")
    assert cluster.types("second").count("wait_completed") == 1


@both_brokers
def test_a_broker_that_loses_everything(cluster: Cluster) -> None:
    cluster.start(workers=2, concurrency=2)
    chains = [
        cluster.engine.start("cluster.chain", {"steps": 3, "pause": 0.1}, run_id=f"c{index}") for index in range(10)
    ]
    batches = [
        cluster.engine.start("cluster.batch", {"steps": 4, "pause": 0.1}, run_id=f"b{index}") for index in range(5)
    ]
    cluster.wait_for_body("s1")
    cluster.broker.flush()
    cluster.wait_for_body("b0")
    cluster.broker.flush()
    cluster.wait_for_end(*chains, *batches)
    check(cluster, *chains, *batches)
    assert set(cluster.ledger.bodies().values()) == {1}


def _cut_other_connections() -> None:
    """End every connection to this database but our own."""
    with connection.cursor() as cursor:
        if connection.vendor == "postgresql":
            cursor.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                "WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )
            return
        cursor.execute("SELECT id FROM information_schema.processlist WHERE db = DATABASE() AND id <> CONNECTION_ID()")
        for (number,) in cursor.fetchall():
            cursor.execute("KILL %s", [number])


@pytest.mark.every_database
def test_a_database_connection_that_is_cut_under_a_step(cluster: Cluster) -> None:
    if connection.vendor == "sqlite":
        pytest.skip("SQLite has no connection that could be cut")
    cluster.start(workers=1, concurrency=2)
    cluster.engine.start("cluster.chain", {"steps": 2, "hold": "go"}, run_id="r")
    cluster.engine.start("cluster.batch", {"steps": 2, "hold": "go"}, run_id="b")
    cluster.wait_for_body("s0")
    _cut_other_connections()
    cluster.release("go")
    cluster.wait_for_end("r", "b")
    check(cluster, "r", "b")
    assert set(cluster.ledger.bodies().values()) == {1}


def test_a_step_that_kills_its_process_each_time_ends_as_worker_lost(make_cluster: Callable[..., Cluster]) -> None:
    cluster = make_cluster()
    cluster.flow |= {"MAX_DELIVERIES": 2, "LEASE": 1, "DISPATCH_GRACE": 1}
    cluster.start(workers=1, pool="prefork", concurrency=1)
    cluster.engine.start("cluster.deadly", run_id="r")
    cluster.wait_for_end("r")
    assert cluster.engine.snapshot("r").output == "worker lost"
    assert cluster.ledger.bodies() == {("r", "poison", 1): 2}


def test_a_worker_that_sleeps_through_its_lease_writes_nothing_any_more(cluster: Cluster) -> None:
    sleeper = cluster.start_worker(concurrency=1)
    cluster.engine.start("cluster.chain", {"steps": 2, "hold": "go"}, run_id="r")
    cluster.wait_for_body("s0")
    sleeper.signal(signal.SIGSTOP)
    cluster.start(workers=1)
    cluster.wait_for_body("s0", times=2)
    cluster.release("go")
    cluster.wait_for_end("r")
    before = cluster.types("r")
    sleeper.signal(signal.SIGCONT)
    cluster.wait_until(lambda: len(cluster.ledger.entries("end", step_id="s0")) == 2, "the sleeper's own end")
    cluster.end(sleeper)
    assert cluster.types("r") == before


def test_runs_that_are_stopped_while_their_worker_is_killed(cluster: Cluster) -> None:
    """Each cleans up, in spite of the death, and starts nothing ordinary after the request."""
    victim = cluster.start_worker()
    cluster.start(workers=1)
    run_ids = [cluster.engine.start("cluster.stoppable", {"pause": 0.05}, run_id=f"r{index}") for index in range(8)]
    cluster.wait_until(lambda: len({entry.run_id for entry in cluster.ledger.entries("begin")}) == 8, "all of them")
    for run_id in run_ids[:4]:
        cluster.engine.request_cancellation(run_id, "enough")
    victim.kill()
    cluster.start_worker()
    for run_id in run_ids[4:]:
        cluster.engine.request_cancellation(run_id, "enough")
    cluster.wait_for_end(*run_ids)
    for run_id in run_ids:
        history = cluster.engine.history(run_id)
        types = [item.type for item in history]
        after = history[types.index("run_cancellation_requested") :]
        started = {item.data["step_id"] for item in after if item.type == "step_started"}
        assert started == {"clean"}
        assert types[-1] == "run_cancelled"
        cleaned = [item for item in after if item.type == "step_completed" and item.data["step_id"] == "clean"]
        assert len(cleaned) == 1
    check(cluster, *run_ids, kills=1, at_once=4)
