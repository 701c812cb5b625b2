"""The dispatcher that needs no server: it handles the task in the caller's thread."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from functools import partial

from flow_app.core.tasks import FlowTask
from flow_app.dispatch.handling import handle_task
from flow_app.engine import FlowEngine
from flow_app.errors import RuntimeBuildRouteNotFoundError

logger = logging.getLogger("flow_app.dispatch")


class InlineDispatcher:
    """Drives inside the call that dispatches, and lets the drive's error through to it.

    What is dispatched while a task is being handled (by a step that starts a run, or at the end of a slice) is handled
    after it, in the same call; errors of those are logged, for they are nobody's answer.
    """

    def __init__(self, engine: FlowEngine) -> None:
        self.engine = engine
        self._local = threading.local()

    def dispatch(self, task: FlowTask) -> None:
        if not self.in_call(partial(handle_task, self.engine, task)):
            self._local.backlog.append(task)

    def in_call(self, act: Callable[[], object]) -> bool:
        """Do ``act`` as a task's handling, and then what it dispatched; False while another task is being handled."""
        if getattr(self._local, "backlog", None) is not None:
            return False
        self._local.backlog = backlog = deque[FlowTask]()
        try:
            act()
        finally:
            try:
                self._work_off(backlog)
            finally:
                self._local.backlog = None
        return True

    def _work_off(self, backlog: deque[FlowTask]) -> None:
        while backlog:
            task = backlog.popleft()
            try:
                handle_task(self.engine, task)
            except Exception:
                run_id = task.explicit_run_id
                logger.exception("Run %s failed to be driven", run_id, extra={"run_id": run_id})

    def has_route(self, build: str | None) -> bool:
        return self.engine.supports_runtime_build(build)

    def dispatch_for_build(self, build: str | None, task: FlowTask) -> None:
        if not self.has_route(build):
            raise RuntimeBuildRouteNotFoundError(build)
        self.dispatch(task)
