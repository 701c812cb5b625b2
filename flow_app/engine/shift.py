"""A worker's shift: how much it may do before others get their turn, and what it goes on with instead of sending it."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from threading import Lock, Timer

from django.db import connections

from flow_app.core.tasks import DriveRun, RunStep
from flow_app.engine import shutdown
from flow_app.engine.services import Services

#: Seconds for which members of a batch may be held: longer than it takes to send them, shorter than people notice.
PATIENCE = 0.05


class Shift:
    """What one message leads to: a slice of work, measured from its beginning.

    With ``holds``, tasks that would go to the very same workers wait here for this one to be free: the drive after the
    outcome that a run was parked for, and half of a batch that it has just sent. To run a short body costs less than to
    send it. What is still held after :data:`PATIENCE`, at the end of the slice, or at a shutdown, is sent after all.
    """

    def __init__(self, services: Services, *, holds: bool = False) -> None:
        self.services = services
        self.steps = 0
        self._holds = holds
        self._began = services.store.clock.monotonic()
        self._held: deque[DriveRun | RunStep] = deque()
        self._build: str | None = None
        self._guard = Lock()  # the timer's thread sends what is held
        self._timer: Timer | None = None
        self._is_late = False  # has the timer gone off?

    @property
    def is_over(self) -> bool:
        limit, elapsed = self.services.options.drive_slice, self.services.store.clock.monotonic() - self._began
        return shutdown.requested() or self.steps >= limit.steps or elapsed >= limit.seconds

    def holds_drive(self, task: DriveRun, *, build: str | None) -> bool:
        """Hold it, if it may be; else it must be sent."""
        if not self._may_hold(task.run_id, build):
            return False
        with self._guard:
            self._held.append(task)
        return True

    def hold_half(self, tasks: Sequence[RunStep], *, build: str | None) -> Sequence[RunStep]:
        """Hold the latter half of these, at least one, if they may be; those that are not held must be sent."""
        if not tasks or not self._may_hold(tasks[0].run_id, build):
            return ()
        mine = tasks[len(tasks) - max(len(tasks) // 2, 1) :]
        self._stop_timer()
        with self._guard:
            self._held.extend(mine)
        if len(mine) > 1:  # one alone is begun at once
            self._timer = Timer(PATIENCE, self._send_in_time)
            self._timer.daemon = True
            self._timer.start()
        return mine

    def _may_hold(self, run_id: str, build: str | None) -> bool:
        if not self._holds or self._held or self.is_over or not self.services.same_workers(run_id, build):
            return False
        self._build = build
        return True

    def next(self) -> DriveRun | RunStep | None:
        """The next task that is held; None at the end of the shift."""
        if self.is_over:
            self.end()
        with self._guard:
            return self._held.popleft() if self._held else None

    def end(self) -> None:
        """Send what is held; then nothing more is done for this shift."""
        self._stop_timer()
        self._send_steps()
        with self._guard:
            drives, self._held = self._held, deque()
        for drive in drives:
            self.services.dispatch_quietly(self._build, drive)

    def _stop_timer(self) -> None:
        """It may be sending just now: no process may end, and no other timer begin, before it has."""
        if self._timer is not None:
            self._timer.cancel()
            if self._is_late:
                self._timer.join()
            self._timer, self._is_late = None, False

    def _send_in_time(self) -> None:
        self._is_late = True
        try:
            self._send_steps()
        finally:
            connections.close_all()  # of the timer's thread, if the project's routing opened any

    def _send_steps(self) -> None:
        with self._guard:
            steps = [task for task in self._held if isinstance(task, RunStep)]
            self._held = deque(task for task in self._held if isinstance(task, DriveRun))
        for step in steps:
            self.services.dispatch_step_quietly(step, build=self._build, queue=None)
