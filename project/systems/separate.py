"""Worker processes and a beat process, as a deployment has them: started, watched and ended from here."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import Self

from project.systems.errors import SystemFailureError

_BEFORE_KILLING = 20  # seconds: what a warm shutdown may take


def celery_commands(*, workers: int = 2, concurrency: int = 2) -> list[list[str]]:
    """Command lines of some workers of some processes each, and of one beat."""
    celery = [sys.executable, "-m", "celery", "--app", "project"]
    worker = [*celery, "worker", f"--concurrency={concurrency}", "--loglevel=ERROR", "--without-gossip"]
    names = [f"demo{number}-{os.getpid()}@%h" for number in range(1, workers + 1)]
    # The default scheduler would leave a file behind.
    beat = [*celery, "beat", "--loglevel=ERROR", "--scheduler=celery.beat:Scheduler", "--max-interval=1", "--pidfile="]
    return [*([*worker, f"--hostname={name}"] for name in names), beat]


class SeparateSystem:
    """Processes that live as long as the block: by default some workers and one beat."""

    def __init__(self, commands: Sequence[list[str]] | None = None) -> None:
        self._commands = celery_commands() if commands is None else commands
        self._running: list[tuple[list[str], subprocess.Popen[bytes]]] = []

    def __enter__(self) -> Self:
        for command in self._commands:
            # A session of its own: an interrupt from the keyboard is for us, and we end them.
            child = subprocess.Popen(command, stdout=subprocess.DEVNULL, start_new_session=True)  # noqa: S603
            self._running.append((command, child))
        return self

    def __exit__(self, *error: object) -> None:
        for _, child in self._running:
            child.terminate()
        give_up = time.monotonic() + _BEFORE_KILLING
        for _, child in self._running:
            try:
                child.wait(max(0.0, give_up - time.monotonic()))
            except subprocess.TimeoutExpired:
                os.killpg(child.pid, signal.SIGKILL)
                child.wait()

    @property
    def alive(self) -> int:
        """How many of the processes are."""
        return sum(child.poll() is None for _, child in self._running)

    def check(self) -> None:
        """Raise SystemFailureError when a process has ended by itself."""
        for command, child in self._running:
            if child.poll() is not None:
                raise SystemFailureError(
                    f"A process has ended by itself with status {child.returncode}: {' '.join(command)}"
                )
