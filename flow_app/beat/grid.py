"""An interval that all beats count alike."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from celery.schedules import schedstate, schedule

#: From here on intervals are counted.
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def latest_on_grid(at: datetime, every: timedelta) -> datetime:
    """The latest point of the grid at or before ``at``."""
    return EPOCH + (at - EPOCH) // every * every


class OnTheGrid(schedule):
    """An interval counted from 1970 on, and not from when beat was started: all beats mean the same ticks."""

    run_every: timedelta

    def remaining_estimate(self, last_run_at: datetime) -> timedelta:
        upcoming = latest_on_grid(self.maybe_make_aware(last_run_at), self.run_every) + self.run_every
        return upcoming - self.maybe_make_aware(self.now())

    def is_due(self, last_run_at: datetime) -> schedstate:
        left = self.remaining_estimate(last_run_at).total_seconds()
        if left > 0:
            return schedstate(False, left)
        return schedstate(True, self.remaining_estimate(self.now()).total_seconds())
