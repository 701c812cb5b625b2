"""What follows from a task and this worker may do itself: a message less, and a wait less for a free worker."""

from __future__ import annotations

from flow_app.core.tasks import DriveRun, RunStep
from flow_app.engine import shutdown
from flow_app.engine.services import Services


class Onward:
    """Holds one task at a time, for as long as one drive may last; then others get their turn.

    Only what would go to the very same workers is held: the drive after the outcome that a run was parked for, and one
    member of a batch that was just sent.
    """

    def __init__(self, services: Services) -> None:
        self.services = services
        self._held: tuple[DriveRun | RunStep, str | None] | None = None
        self._left = services.options.drive_slice.steps
        self._until = services.store.clock.monotonic() + services.options.drive_slice.seconds

    def takes(self, task: DriveRun | RunStep, *, build: str | None) -> bool:
        """Hold the task, instead of its being sent; False when it must be sent."""
        over = shutdown.requested() or self._left <= 0 or self.services.store.clock.monotonic() >= self._until
        if over or self._held is not None or not self.services.same_workers(task.run_id, build):
            return False
        self._left -= 1
        self._held = task, build
        return True

    def release(self) -> DriveRun | RunStep | None:
        """The task that is held. When the worker has been told to stop meanwhile, it is sent after all."""
        if self._held is None:
            return None
        task, build = self._held
        self._held = None
        if not shutdown.requested():
            return task
        if isinstance(task, RunStep):
            self.services.dispatch_step_quietly(task, build=build, queue=None)
        else:
            self.services.dispatch_quietly(build, task)
        return None
