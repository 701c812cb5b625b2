"""The clocks of a deployment. One clock decides about leases and due times, never two in one comparison."""

from __future__ import annotations

import logging
import time
from contextlib import suppress
from datetime import UTC, datetime, timedelta

from django.db import connections
from django.db.utils import Error

from flow_app.core.ports import Clock
from flow_app.store.dialects import dialect_of

logger = logging.getLogger("flow_app.store")

_RECALIBRATE_AFTER = 300.0

#: What the database said, and when, by this process's monotonic clock.
Reading = tuple[datetime, float]


class SystemClock:
    """The application's clock, for SQLite: the database is on the same host, and its own clock is coarser."""

    in_database = False

    def now(self) -> datetime:
        return datetime.now(UTC)

    def monotonic(self) -> float:
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)


class DatabaseClock(SystemClock):
    """The database server's clock, read seldom: in between it is the last reading plus the time passed since.

    Every claim of a lease brings a reading along, so a drive asks for none of its own.
    """

    in_database = True

    def __init__(self, using: str) -> None:
        self.using = using
        self._reading: Reading | None = None

    def now(self) -> datetime:
        reading = self._reading
        if reading is None:
            reading = self._read()
        elif time.monotonic() - reading[1] > _RECALIBRATE_AFTER:
            reading = self._read_again(reading)
        return _from(reading)

    def calibrate(self, now: datetime) -> None:
        """The database has just said that it is ``now``."""
        self._reading = (now, time.monotonic())

    def _read_again(self, reading: Reading) -> Reading:
        """The database may be away, or a step's body has used up its connection: neither costs the body's outcome."""
        try:
            return self._read()
        except Error:
            logger.warning("The database's clock could not be read; the last reading goes on", exc_info=True)
            with suppress(Error):  # it may be closed already
                connections[self.using].close_if_unusable_or_obsolete()
            self.calibrate(_from(reading))
            return reading

    def _read(self) -> Reading:
        connection = connections[self.using]
        with connection.cursor() as cursor:
            cursor.execute(f"SELECT {dialect_of(connection).utc_now}")
            (now,) = cursor.fetchone()
        self._reading = reading = (now.replace(tzinfo=UTC), time.monotonic())
        return reading


def _from(reading: Reading) -> datetime:
    then, at = reading
    return then + timedelta(seconds=time.monotonic() - at)


def clock_for(using: str) -> Clock:
    """The clock that fits a database."""
    return SystemClock() if connections[using].vendor == "sqlite" else DatabaseClock(using)
