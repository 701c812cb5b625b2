"""How the members of a batch run side by side in one process. Only bodies run here; the driver alone appends."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

from django.db import connections

from flow_app.engine.outcomes import Outcome
from flow_app.errors import RuntimeFailureError

Job = Callable[[], Outcome]


class StepDiedError(RuntimeFailureError):
    """A body has stopped its thread, as ``sys.exit`` does. Its attempt stays open, and counts as a lost worker's."""


class Executor(Protocol):
    def run(self, jobs: Sequence[Job]) -> Iterator[Outcome]:
        """Outcomes in the order they settle. A consumer that stops early abandons the rest."""


class SerialExecutor:
    """One after another in the driver's thread: inside a TestCase, on in-memory SQLite, and after lost workers."""

    def run(self, jobs: Sequence[Job]) -> Iterator[Outcome]:
        for job in jobs:
            yield job()


class ThreadExecutor:
    """Up to ``threads`` at once, each thread with connections of its own.

    The threads are daemons: Python cannot end a body that hangs, and a body nobody waits for must not keep the process
    from ending.
    """

    def __init__(self, threads: int) -> None:
        self._threads = threads

    def run(self, jobs: Sequence[Job]) -> Iterator[Outcome]:
        waiting = list(reversed(jobs))
        settled: queue.SimpleQueue[Outcome | BaseException] = queue.SimpleQueue()

        def start() -> None:
            if waiting:
                start_thread(waiting.pop(), settled)

        for _ in range(min(self._threads, len(jobs))):
            start()
        for _ in jobs:
            outcome = settled.get()
            yield result(outcome)
            start()  # not before the consumer has seen it: it may have ended the run


def result(settled: Outcome | BaseException) -> Outcome:
    """What a thread has settled. Raises StepDiedError when its body stopped it, and what the engine raised there."""
    if isinstance(settled, Outcome):
        return settled
    if isinstance(settled, Exception):
        raise settled
    raise StepDiedError(f"A step's task died without a result: {settled!r}.") from settled


def start_thread(job: Job, settled: queue.SimpleQueue[Outcome | BaseException]) -> None:
    """Run a body in a thread of its own, which tells what came of it."""
    threading.Thread(target=_run, args=(job, settled), name="flow_app-step", daemon=True).start()


def _run(job: Job, settled: queue.SimpleQueue[Outcome | BaseException]) -> None:
    try:
        outcome: Outcome | BaseException = job()
    except BaseException as death:
        outcome = death
    try:
        connections.close_all()
    finally:
        settled.put(outcome)
