"""Entries for Celery beat, to put into ``CELERY_BEAT_SCHEDULE``."""

from __future__ import annotations

from typing import Any


def schedule(*, every: float = 5) -> dict[str, dict[str, Any]]:
    """The scheduler's tick, ``every`` so many seconds: how late a timer may fire, and a lost message be found.

    Ticks that no worker took are dropped after a minute, so that a worker that comes back finds few of them.
    """
    return {"flow_app.tick": {"task": "flow_app.tick", "schedule": every, "options": {"expires": max(60, 2 * every)}}}
