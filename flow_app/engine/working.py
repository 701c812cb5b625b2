"""A worker at work: the task that its message names, and then what its shift holds."""

from __future__ import annotations

import logging
from datetime import datetime

from flow_app.core.tasks import DriveRun, RunStep
from flow_app.engine import remote
from flow_app.engine.drive import Wakeup, drive
from flow_app.engine.services import Services
from flow_app.engine.shift import Shift
from flow_app.errors import FlowError

logger = logging.getLogger("flow_app.engine")


def drive_run(services: Services, run_id: str, *, now: datetime | None = None) -> list[Wakeup]:
    """Complete what is due, and drive; what this task itself brought in. Raises as :func:`drive` does."""
    shift = Shift(services, holds=True)
    wakeups = drive(services, run_id, complete_due=True, now=now, shift=shift)
    _go_on(shift)
    return wakeups


def run_step(services: Services, run_id: str, step_id: str, attempt: int) -> bool:
    """Run one attempt, and drive its run on if it waited for just that. Raises what the attempt raises."""
    shift = Shift(services, holds=True)
    settled = remote.run_step(services, run_id, step_id, attempt, shift=shift)
    _go_on(shift)
    return settled


def _go_on(shift: Shift) -> None:
    """Errors are nobody's answer here: what stops a run stands on its row, and the rest comes back by its wake-up."""
    try:
        while (task := shift.next()) is not None:
            try:
                _do(task, shift)
            except Exception as error:
                labels = {"run_id": task.run_id, "code": getattr(error, "code", "runtime")}
                unexpected = not isinstance(error, FlowError)
                logger.warning("%s after another task: %s", task.type, error, exc_info=unexpected, extra=labels)
    finally:
        shift.end()


def _do(task: DriveRun | RunStep, shift: Shift) -> None:
    if isinstance(task, DriveRun):
        drive(shift.services, task.run_id, complete_due=True, shift=shift)
    else:
        shift.steps += 1
        remote.run_step(shift.services, task.run_id, task.step_id, task.attempt, shift=shift)
