"""The scheduler as a process: tick when something is due, and sleep until then."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from django.db import close_old_connections

from flow_app.dispatch.scheduler import BATCH, FlowScheduler, TickReport
from flow_app.errors import FlowError

logger = logging.getLogger("flow_app.dispatch")

#: Seconds until the next try after one that failed.
_PAUSE = 1.0


class Watch:
    """Ticks whenever something is due.

    Other processes set wake-ups that this one does not hear of. So it never sleeps longer than ``longest`` seconds
    before it looks again, which is one read off the end of an index: that is how late a timer may be.
    """

    def __init__(
        self, scheduler: FlowScheduler, *, longest: float = 0.05, told: Callable[[TickReport], None] | None = None
    ) -> None:
        self.scheduler = scheduler
        self.longest = longest
        self._told = told

    def until(self, stop: threading.Event) -> None:
        """What goes wrong in one tick is logged: this process is what brings every run back."""
        while not stop.is_set():
            try:
                pause = self.look()
            except Exception as error:
                self._log(error)
                close_old_connections()  # the database may have been away
                pause = _PAUSE
            stop.wait(pause)

    def look(self) -> float:
        """Tick if something is due; seconds to sleep before the next look."""
        delay = self.scheduler.next_wakeup_delay()
        if delay is None:
            return self.longest
        if delay:
            return min(delay.total_seconds(), self.longest)
        report = self.scheduler.tick(limit=BATCH)
        if self._told is not None:
            self._told(report)
        return 0.0 if report.has_due_work else self.longest  # another tick has it, or who drives it

    def _log(self, error: Exception) -> None:
        if isinstance(error, FlowError):
            logger.error("A tick failed; the next one follows: %s", error, extra={"code": error.code})
        else:
            logger.error("A tick failed; the next one follows", exc_info=error)
