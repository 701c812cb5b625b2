"""Worker processes and a beat process, as a deployment has them: started, watched and ended from here."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from typing import Self

from project.systems.errors import SystemFailureError

_BEFORE_KILLING = 20  # seconds: what a warm shutdown may take
_CELERY = [sys.executable, "-m", "celery", "--app", "project"]
_WORKER = ["worker", "--loglevel=ERROR", "--without-gossip", "--without-mingle"]
# The default scheduler would leave a file behind.
_BEAT = ["beat", "--loglevel=ERROR", "--scheduler=celery.beat:Scheduler", "--max-interval=1", "--pidfile="]


class SeparateSystem:
    """Some workers of some processes each, and one beat. They live as long as the block."""

    def __init__(self, workers: int = 2, concurrency: int = 2) -> None:
        names = [f"demo{number}-{os.getpid()}@%h" for number in range(1, workers + 1)]
        self._commands = [[*_WORKER, f"--concurrency={concurrency}", f"--hostname={name}"] for name in names]
        self._commands.append(_BEAT)
        self._running: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Self:
        for command in self._commands:
            # A session of its own: an interrupt from the keyboard is for us, and we end them.
            child = subprocess.Popen([*_CELERY, *command], stdout=subprocess.DEVNULL, start_new_session=True)  # noqa: S603
            self._running.append(child)
        return self

    def __exit__(self, *error: object) -> None:
        for child in self._running:
            child.terminate()
        give_up = time.monotonic() + _BEFORE_KILLING
        for child in self._running:
            try:
                child.wait(max(0.0, give_up - time.monotonic()))
            except subprocess.TimeoutExpired:
                os.killpg(child.pid, signal.SIGKILL)
                child.wait()

    def check(self) -> None:
        """Raise SystemFailureError when a process has ended by itself."""
        for child in self._running:
            if child.poll() is not None:
                command = " ".join(str(part) for part in child.args) if isinstance(child.args, list) else child.args
                raise SystemFailureError(f"A process has ended by itself with status {child.returncode}: {command!r}")
