"""A whole Celery system, worker and beat, for as long as somebody needs one."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Protocol

from project.celery import app


class System(Protocol):
    def check(self) -> None:
        """Raise SystemFailureError when a part of the system has ended by itself."""


def start() -> AbstractContextManager[System]:
    """The system that fits the broker: the memory transport reaches no other process."""
    if app.conf.broker_url.startswith("memory:"):
        from project.systems.embedded import EmbeddedSystem

        return EmbeddedSystem()
    from project.systems.separate import SeparateSystem

    return SeparateSystem()
