"""A Celery worker and beat inside this process, over the memory transport: a whole system without any server."""

from __future__ import annotations

import threading
from typing import Any, Self

from celery.beat import Scheduler, Service
from celery.worker import WorkController

from project.celery import app
from project.systems.errors import SystemFailureError

# Measured: without these two settings the memory transport sleeps a second for every handful of messages.
_FAST = {"broker_transport_options": {"polling_interval": 0.05}, "worker_prefetch_multiplier": 0}
_BEFORE_GIVING_UP = 30  # seconds


class EmbeddedSystem:
    """One worker with some threads, and beat, each in a thread of this process. They live as long as the block."""

    def __init__(self, threads: int = 4) -> None:
        self._threads = threads
        self._ready = threading.Event()
        self._alive: list[threading.Thread] = []
        self._kept: dict[str, Any] = {}

    def __enter__(self) -> Self:
        self._kept = {name: app.conf[name] for name in _FAST}
        app.conf.update(_FAST)
        self._worker = WorkController(
            app=app,
            hostname="embedded@localhost",
            pool_cls="threads",
            concurrency=self._threads,
            ready_callback=lambda consumer: self._ready.set(),
            without_heartbeat=True,
            without_mingle=True,
            without_gossip=True,
        )
        self._beat = Service(app, max_interval=1, scheduler_cls=Scheduler)  # the default one would leave a file behind
        self._start("worker", self._worker.start)
        if not self._ready.wait(_BEFORE_GIVING_UP):
            raise SystemFailureError("The embedded worker did not start.")
        self._start("beat", self._beat.start)
        return self

    def __exit__(self, *error: object) -> None:
        self._beat.stop()
        self._worker.stop()
        for thread in self._alive:
            thread.join(_BEFORE_GIVING_UP)
        app.conf.update(self._kept)

    def _start(self, name: str, run: Any) -> None:
        thread = threading.Thread(target=run, name=f"embedded-{name}", daemon=True)
        self._alive.append(thread)
        thread.start()

    def check(self) -> None:
        """Raise SystemFailureError when a part of the system has ended by itself."""
        for thread in self._alive:
            if not thread.is_alive():
                raise SystemFailureError(f"The thread {thread.name} has ended by itself.")
