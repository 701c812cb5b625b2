"""What a worker does with a message: twice, late, of another build, of a run that fails, of none at all."""

from __future__ import annotations

import logging
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import pytest
from celery.worker import WorkController
from django.db import connection, connections

from flow_app import get_engine, step, workflow
from flow_app.dispatch.celery import CeleryDispatcher
from flow_app.models import Run
from project.celery import app as project_app

PATIENCE = 30  # seconds until a test that hangs is failed


def drive_run(run_id: str) -> None:
    project_app.tasks["flow_app.drive_run"](run_id)


def drive_run_in_a_thread(run_id: str) -> None:
    try:
        drive_run(run_id)
    finally:
        connections.close_all()


def test_field_report_16_one_execution_at_a_time_of_a_message_that_comes_six_times(engine):
    bodies, inside, go_on = [], threading.Event(), threading.Event()

    @step("charge")
    def charge(ctx):
        bodies.append(ctx.attempt)
        inside.set()
        assert go_on.wait(PATIENCE)
        return len(bodies)

    @workflow("order")
    def order(ctx):
        if not ctx.step_completed("charge"):
            return ctx.schedule_step("charge", charge)
        return ctx.complete(ctx.step_output("charge"))

    run_id = engine.start(order)
    with ThreadPoolExecutor(3) as threads:
        first = threads.submit(drive_run_in_a_thread, run_id)
        assert inside.wait(PATIENCE)
        for duplicate in [threads.submit(drive_run_in_a_thread, run_id) for _ in range(3)]:
            duplicate.result(PATIENCE)  # they return at once: somebody else drives
        go_on.set()
        first.result(PATIENCE)
    for _ in range(2):
        drive_run(run_id)
    assert bodies == [1]
    assert [event.type for event in engine.history(run_id)].count("step_completed") == 1
    assert engine.snapshot(run_id).output == 1


@pytest.mark.parametrize("task", ["flow_app.drive_run", "flow_app.run_step"])
def test_a_message_for_a_run_that_is_gone_is_no_error(engine, task, caplog):
    args = ("gone",) if task == "flow_app.drive_run" else ("gone", "s", 1)
    with caplog.at_level(logging.INFO):
        project_app.tasks[task](*args)
    assert all(record.levelno <= logging.INFO for record in caplog.records)


def test_a_workflow_that_raises_blocks_its_run_and_not_the_worker(engine, caplog):
    @workflow("broken")
    def broken(ctx):
        raise ZeroDivisionError("by zero")

    run_id = engine.start(broken)
    with caplog.at_level(logging.WARNING, "flow_app.tasks"):
        drive_run(run_id)
    row = engine.row(run_id)
    assert (row.wake_reason, row.blocked_code, row.blocked_count) == ("blocked", "runtime", 1)
    (record,) = [record for record in caplog.records if record.name == "flow_app.tasks"]
    assert (record.levelname, record.code) == ("WARNING", "runtime")  # type: ignore[attr-defined]


KILL = {
    "postgresql": ("SELECT pg_backend_pid()", "SELECT pg_terminate_backend(%s)"),
    "mysql": ("SELECT connection_id()", "KILL %s"),
}


@pytest.mark.skipif(connection.vendor not in KILL, reason="a file does not hang up")
def test_a_connection_that_died_between_two_tasks_is_opened_anew(engine):
    """Without Celery's Django fixup nobody else would: tasks would fail until the worker is restarted."""
    workflow("plain")(lambda ctx: ctx.complete())
    first, second = engine.start("plain"), engine.start("plain")
    drive_run(first)
    ask, kill = KILL[connection.vendor]
    with connection.cursor() as cursor:
        cursor.execute(ask)
        (server_side,) = cursor.fetchone()
    other = connection.copy()
    with other.cursor() as cursor:
        cursor.execute(kill, [server_side])
    other.close()
    drive_run(second)
    assert engine.snapshot(second).status == "completed"


# --- a real worker --------------------------------------------------------------------------------------------------


class Embedded:
    """A worker of the project in this process, until it is stopped."""

    def __init__(self, queues: list[str] | None = None) -> None:
        CeleryDispatcher(get_engine())  # its tasks are known before the worker counts them
        ready = threading.Event()
        self._worker = WorkController(
            app=project_app,
            hostname="embedded@localhost",
            pool_cls="threads",
            concurrency=2,
            queues=queues,
            ready_callback=lambda consumer: ready.set(),
            without_heartbeat=True,
            without_mingle=True,
            without_gossip=True,
        )
        self._thread = threading.Thread(target=self._worker.start, daemon=True)
        self._thread.start()
        assert ready.wait(PATIENCE)

    def stop(self) -> None:
        self._worker.stop()
        self._thread.join(PATIENCE)
        project_app.amqp.__dict__.pop("queues")  # which ones it reads is remembered there


@pytest.fixture
def worker(celery_conf):
    """Start a worker: ``worker(queues=[...])``."""
    # Measured: without these two the memory transport sleeps a second for every handful of messages.
    celery_conf(broker_transport_options={"polling_interval": 0.01}, worker_prefetch_multiplier=0)
    with ExitStack() as running:

        def start(**kwargs):
            running.callback(Embedded(**kwargs).stop)

        yield start


def ended(run_ids: list[str]) -> bool:
    """Have they all? Looked at for as long as a test may take."""
    clock = threading.Event()
    for _ in range(PATIENCE * 50):
        if Run.objects.filter(run_id__in=run_ids, wake_reason="ended").count() == len(run_ids):
            return True
        clock.wait(0.02)
    return False


def test_a_real_worker_brings_every_run_to_its_end(engine, worker):
    @step("double")
    def double(ctx):
        return ctx.input * 2

    @workflow("doubles")
    def doubles(ctx):
        if not ctx.step_completed("once"):
            return ctx.schedule_step("once", double, ctx.input)
        if not ctx.step_completed("twice"):
            return ctx.schedule_step("twice", double, ctx.step_output("once"))
        return ctx.complete(ctx.step_output("twice"))

    worker()
    run_ids = [engine.start(doubles, number) for number in range(20)]
    assert ended(run_ids)
    assert [engine.snapshot(run_id).output for run_id in run_ids] == [number * 4 for number in range(20)]


def test_a_worker_that_comes_late_finds_what_was_sent(engine, worker):
    workflow("plain")(lambda ctx: ctx.complete())
    run_ids = [engine.start("plain") for _ in range(3)]
    worker()
    assert ended(run_ids)


def test_two_generations_of_workers_each_drive_their_own_runs(engine, flow_app, worker):
    """One process, so one generation after the other; the queues keep what is for those that are not there."""
    by = {}

    @workflow("release")
    def release(ctx):
        by[ctx.run_id] = threading.current_thread().name
        return ctx.complete()

    routes = {"v1": "flow-v1", "v2": "flow-v2"}
    flow_app(BUILD={"current": "v1", "routes": routes})
    old = get_engine().start(release)
    flow_app(BUILD={"current": "v2", "routes": routes})
    new = get_engine().start(release)
    worker(queues=["flow-v2"])
    assert ended([new])
    assert set(by) == {new}
    assert get_engine().row(old).wake_reason == "dispatched"
