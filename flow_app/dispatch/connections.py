"""What a task does about connections to the database that were kept from the task before."""

from __future__ import annotations

import threading
import time
from typing import Any

from django.db import close_old_connections, connections

_ALIVE = 1.0  # seconds


class _Answered(threading.local):
    """When each connection of this thread did all that a task asked of it, by alias."""

    def __init__(self) -> None:
        self.at: dict[str, float] = {}


_answered = _Answered()


def renew(alias: str) -> None:
    """Close what is too old; a project without Celery's Django fixup has nobody else to do it.

    With ``CONN_HEALTH_CHECKS`` Django asks a kept connection in each task whether it lives. One that has served the
    task before need not be asked.
    """
    close_old_connections()
    at = _answered.at.pop(alias, None)
    if at is not None and time.monotonic() - at < _ALIVE:
        kept: Any = connections[alias]
        kept.health_check_done = True


def has_served(alias: str) -> None:
    """A task has ended well, and its connection with it."""
    _answered.at[alias] = time.monotonic()
