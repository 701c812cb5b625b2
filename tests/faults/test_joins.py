"""Fifty steps that finish together on ten workers: their run passes the join once, every time.

Workers are threads here: what meets is in the database, and processes would only take longer to get there.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from queue import SimpleQueue
from threading import Barrier, Lock, Thread
from typing import Any

import pytest
from django.db import connection, connections

from flow_app import step, workflow
from flow_app.authoring.runtime import RegistryRuntime
from flow_app.conf import Options
from flow_app.core.tasks import FlowTask, RunStep
from flow_app.engine import FlowEngine
from flow_app.store import DjangoEventStore

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.slow]

WORKERS, STEPS, REPEATS = 10, 50, 200
IDS = [f"s{index}" for index in range(STEPS)]


class Threads:
    """A dispatcher and its workers. ``copies`` of each message arrive, one after the other."""

    def __init__(self, *, copies: int = 1) -> None:
        self.sent: Counter[tuple[str, str]] = Counter()
        self.errors: list[BaseException] = []
        self._copies = copies
        self._messages: SimpleQueue[FlowTask | None] = SimpleQueue()
        self._lock = Lock()
        self.engine = FlowEngine(
            DjangoEventStore(), RegistryRuntime(), options=Options(), secrets=("secret",), dispatcher=self
        )

    def has_route(self, build: str | None) -> bool:
        return True

    def dispatch_for_build(self, build: str | None, task: FlowTask) -> None:
        self.dispatch(task)

    def dispatch_step(self, step: RunStep, *, build: str | None, queue: str | None) -> None:
        self.dispatch(step)

    def dispatch(self, task: FlowTask) -> None:
        with self._lock:
            self.sent[task.type, str(task.explicit_run_id)] += 1
        for _ in range(self._copies):
            self._messages.put(task)

    @contextmanager
    def working(self) -> Iterator[None]:
        threads = [Thread(target=self._work, daemon=True) for _ in range(WORKERS)]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            for _ in threads:
                self._messages.put(None)
            for thread in threads:
                thread.join(30)

    def _work(self) -> None:
        while (task := self._messages.get()) is not None:
            try:
                self._handle(task)
            except BaseException as error:
                self.errors.append(error)
        connections.close_all()

    def _handle(self, task: FlowTask) -> None:
        if isinstance(task, RunStep):
            self.engine.run_step(task.run_id, task.step_id, task.attempt)
        else:
            self.engine.resume_scheduled_run(str(task.explicit_run_id))

    def wait_for_end(self, run_id: str) -> None:
        give_up = time.monotonic() + 60
        while not self.engine.row(run_id).status.is_terminal:
            assert time.monotonic() < give_up, f"{self.engine.row(run_id)} {self.errors}"
            time.sleep(0.002)


def join(bodies: Counter[tuple[str, str]], *, together: bool) -> None:
    barrier, lock = Barrier(WORKERS), Lock()

    @step("joins.leaf")
    def leaf(ctx: Any, data: str) -> str:
        with lock:
            bodies[ctx.run_id, ctx.step_id] += 1
        if together:
            barrier.wait(30)
        return data

    @step("joins.after")
    def after(ctx: Any, data: list[str]) -> list[str]:
        with lock:
            bodies[ctx.run_id, "after"] += 1
        return data

    @workflow("joins")
    def run(ctx: Any) -> Any:
        if not all(ctx.step_completed(step_id) for step_id in IDS):
            return ctx.schedule_steps([ctx.step(step_id, leaf, step_id) for step_id in IDS])
        if not ctx.step_completed("after"):
            return ctx.schedule_step("after", after, [ctx.step_output(step_id) for step_id in IDS])
        return ctx.complete(ctx.step_output("after"))


def check(engine: FlowEngine, run_id: str, bodies: Counter[tuple[str, str]]) -> None:
    types = [item.type for item in engine.history(run_id)]
    assert types.count("step_completed") == types.count("step_created") == STEPS + 1
    assert types[-1] == "run_completed"
    assert engine.snapshot(run_id).output == IDS
    assert [bodies[run_id, step_id] for step_id in (*IDS, "after")] == [1] * (STEPS + 1)


def test_steps_that_finish_together_pass_the_join_once() -> None:
    bodies: Counter[tuple[str, str]] = Counter()
    threads = Threads()
    join(bodies, together=True)
    # SQLite lets one write at a time: there is nothing to meet.
    repeats = REPEATS // 10 if connection.vendor == "sqlite" else REPEATS
    with threads.working():
        for index in range(repeats):
            run_id = threads.engine.start("joins", run_id=f"r{index}")
            threads.wait_for_end(run_id)
            check(threads.engine, run_id, bodies)
            assert threads.sent["drive_run", run_id] == 2  # the start's and the join's
    assert not threads.errors


def test_steps_whose_messages_come_three_times_pass_the_join_once() -> None:
    bodies: Counter[tuple[str, str]] = Counter()
    threads = Threads(copies=3)
    join(bodies, together=False)
    with threads.working():
        for index in range(REPEATS // 10):
            run_id = threads.engine.start("joins", run_id=f"r{index}")
            threads.wait_for_end(run_id)
            check(threads.engine, run_id, bodies)
    assert not threads.errors
