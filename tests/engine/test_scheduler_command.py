from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import time
from datetime import timedelta
from threading import Event

import pytest
from django.conf import settings
from django.core.management import CommandError, call_command
from django.db import connection, transaction

from flow_app import get_engine, workflow
from flow_app import step as flow_step
from flow_app.core.tasks import DriveRun
from flow_app.dispatch import FlowScheduler
from flow_app.dispatch.scheduler import BATCH
from flow_app.dispatch.watching import Watch
from flow_app.engine import shutdown
from flow_app.models import Run
from flow_app.store import DjangoEventStore
from tests.cluster.given import NAME
from tests.engine.logbook import queued
from tests.store.support import LEASE, begin, new, step


@pytest.mark.django_db(transaction=True)
def test_the_scheduler_process_brings_in_what_is_due() -> None:
    engine = get_engine()
    past = engine.store.clock.now() - timedelta(seconds=1)

    @workflow("nap")
    def nap(ctx):  # type: ignore[no-untyped-def]
        return ctx.complete("rested") if ctx.wait_completed("nap") else ctx.wait_until("nap", past)

    run_id = engine.start("nap")
    assert engine.snapshot(run_id).status == "suspended"
    out = io.StringIO()
    call_command("flow_scheduler", "--once", stdout=out)
    assert engine.snapshot(run_id).output == "rested"
    assert out.getvalue() == "1 dispatched, 0 without a route, 0 failed\n"
    assert not Run.objects.filter(wake_at__isnull=False).exists()


@pytest.mark.django_db(transaction=True)
def test_told_to_stop_it_ends_with_the_step_at_hand_and_the_run_is_due_at_once() -> None:
    engine = get_engine()
    done: list[int] = []

    @flow_step("slow")
    def slow(index: int) -> None:
        done.append(index)
        if index == 1:
            os.kill(os.getpid(), signal.SIGTERM)

    @workflow("row")
    def row(ctx):  # type: ignore[no-untyped-def]
        for index in range(5):
            if not ctx.step_completed(f"s{index}"):
                return ctx.schedule_step(f"s{index}", slow, index)
        return ctx.complete()

    with transaction.atomic():
        engine.start("row", run_id="r")
        engine.services.dispatcher, inline = None, engine.services.dispatcher
    engine.services.dispatcher = inline
    Run.objects.update(wake_at=engine.store.clock.now())
    call_command("flow_scheduler")
    assert done == [0, 1]
    assert not shutdown.requested()
    left = engine.row("r")
    assert left.lease_expires_at is None
    assert left.wake_at is not None
    assert left.wake_at <= engine.store.clock.now()
    call_command("flow_scheduler", "--once")
    assert done == [0, 1, 2, 3, 4]
    assert engine.snapshot("r").status == "completed"


# --- the process ----------------------------------------------------------------------------------------------------


def test_it_sleeps_until_something_is_due_and_never_longer_than_it_may(store, clock):
    engine, queue = queued(store)
    watch = Watch(FlowScheduler(engine), longest=0.5)
    assert watch.look() == 0.5
    begin(store, "r1", wake_at=clock.now() + timedelta(seconds=0.75))
    assert watch.look() == 0.5
    clock.advance(timedelta(seconds=0.5))
    assert watch.look() == 0.25
    clock.advance(timedelta(seconds=0.25))
    assert watch.look() == 0
    assert queue.take() == [DriveRun("r1")]
    assert watch.look() == 0.5  # the run is due again after its grace


def test_it_works_a_backlog_off_without_sleeping_and_tells_of_every_tick(store):
    for number in range(2 * BATCH + 1):
        begin(store, f"r{number:04}")
    engine, queue = queued(store)
    reports = []
    watch = Watch(FlowScheduler(engine), told=reports.append)
    assert [watch.look() for _ in range(4)] == [0, 0, 0, 0.05]
    assert [len(report.dispatched) for report in reports] == [BATCH, BATCH, 1]
    assert len(queue.take()) == 2 * BATCH + 1


def test_what_is_due_and_in_other_hands_is_not_asked_for_in_a_hurry(store, clock):
    begin(store)
    row = store.claim("r1", lease=LEASE)
    store.append(row, [new(store, step())], change={"lease_expires_at": clock.now() + 3 * LEASE}, epoch=row.lease_epoch)
    clock.advance(LEASE)
    engine, queue = queued(store)
    assert Watch(FlowScheduler(engine)).look() == 0.05
    assert queue.take() == []


def test_a_tick_that_fails_is_not_the_last_one(store, caplog):
    begin(store)
    engine, queue = queued(store)
    queue.routes = set()

    class Impatient(Event):
        """Mends the route while the loop sleeps, then stops it."""

        def wait(self, timeout=None):
            if queue.routes is None:
                self.set()
            queue.routes = None
            return self.is_set()

    Watch(FlowScheduler(engine)).until(Impatient())
    assert queue.take() == [DriveRun("r1")]
    assert "A tick failed; the next one follows: No route" in caplog.text


@pytest.mark.parametrize("poll", ["0", "-1", "soon", "nan", "1e9"])
def test_a_poll_that_is_no_time_is_refused(poll):
    with pytest.raises(CommandError, match="seconds"):
        call_command("flow_scheduler", f"--poll={poll}")


def _until(condition):
    give_up = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < give_up
        time.sleep(0.02)


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_process_sees_what_others_make_due_and_ends_when_told(number):
    """It knows no such workflow, and says so on the run's row: that is how one sees it at work."""
    store = DjangoEventStore()
    given = {"database": str(connection.settings_dict["NAME"]), "flow": {}, "celery": {}}
    environment = {**os.environ, "DJANGO_SETTINGS_MODULE": "tests.cluster.settings", NAME: json.dumps(given)}
    command = [sys.executable, "manage.py", "flow_scheduler", "--verbosity=2"]
    with subprocess.Popen(
        command, cwd=settings.BASE_DIR, env=environment, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            for run_id in ("first", "second"):  # the second one while it has been at work for a while
                begin(store, run_id, workflow="nobody-knows-it")
                _until(lambda run_id=run_id: store.row(run_id).blocked_code == "workflow_not_registered")
        finally:
            process.send_signal(number)
        out, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    assert out.splitlines()[0] == "0 dispatched, 0 without a route, 1 failed"
