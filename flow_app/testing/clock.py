"""A clock that stands still until it is told otherwise."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from threading import Lock

from flow_app.core import instants


class FakeClock:
    """Frozen time, for tests: ``advance`` moves it, and so does ``sleep``, which never waits."""

    in_database = False

    def __init__(self, now: datetime = datetime(2030, 1, 1, tzinfo=UTC)) -> None:
        self._now = instants.utc(now, what="the time of a FakeClock")
        self._elapsed = 0.0
        self._lock = Lock()

    def now(self) -> datetime:
        return self._now

    def monotonic(self) -> float:
        return self._elapsed

    def sleep(self, seconds: float) -> None:
        self.advance(timedelta(seconds=seconds))

    def advance(self, delta: timedelta) -> datetime:
        """Move the time on, and return what it then is."""
        with self._lock:
            self._now += delta
            self._elapsed += delta.total_seconds()
            return self._now

    def move_to(self, now: datetime) -> None:
        """Set the time, forward or back; the monotonic time stays."""
        self._now = instants.utc(now, what="the time of a FakeClock")
