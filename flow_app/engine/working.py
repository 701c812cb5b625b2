"""A worker at work: the task that its message names, and then what follows from it, as long as that is held back."""

from __future__ import annotations

import logging
from datetime import datetime

from flow_app.core.tasks import RunStep
from flow_app.engine import remote
from flow_app.engine.drive import Wakeup, drive
from flow_app.engine.onward import Onward
from flow_app.engine.services import Services
from flow_app.errors import FlowError

logger = logging.getLogger("flow_app.engine")


def drive_run(services: Services, run_id: str, *, now: datetime | None = None) -> list[Wakeup]:
    """Complete what is due, and drive; what this task itself brought in. Raises as :func:`drive` does."""
    onward = Onward(services)
    wakeups = drive(services, run_id, complete_due=True, now=now, onward=onward)
    _go_on(onward)
    return wakeups


def run_step(services: Services, run_id: str, step_id: str, attempt: int) -> bool:
    """Run one attempt, and drive its run on if it waited for just that. Raises what the attempt raises."""
    onward = Onward(services)
    settled = remote.run_step(services, run_id, step_id, attempt, onward=onward)
    _go_on(onward)
    return settled


def _go_on(onward: Onward) -> None:
    """Errors are nobody's answer here: what stops a run stands on its row, and the rest comes back by its wake-up."""
    services = onward.services
    while (task := onward.release()) is not None:
        try:
            if isinstance(task, RunStep):
                remote.run_step(services, task.run_id, task.step_id, task.attempt, onward=onward)
            else:
                drive(services, task.run_id, complete_due=True, onward=onward)
        except FlowError as error:
            labels = {"run_id": task.run_id, "code": error.code}
            logger.warning("%s after another task: %s", task.type, error, extra=labels)
