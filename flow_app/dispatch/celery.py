"""The dispatcher that sends work as Celery messages. Imported by name alone: flow_app needs no Celery."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Mapping
from functools import partial
from importlib import import_module
from typing import Any

from celery import current_app
from kombu.exceptions import OperationalError

from flow_app import conf
from flow_app.core import tasks
from flow_app.core.tasks import FlowTask, RunStep
from flow_app.dispatch.handling import handle_task
from flow_app.engine import FlowEngine
from flow_app.errors import RuntimeBuildRouteNotFoundError

logger = logging.getLogger("flow_app.dispatch")

#: A connection that the broker has dropped is opened anew, once and at once. ``retry=False`` would lose the first
#: message after each restart of the broker, and wait for six seconds while there is none.
_ONE_MORE_TRY = {"max_retries": 1, "interval_start": 0, "interval_step": 0, "interval_max": 0}


class _InTurn(threading.local):
    """Eager tasks of this thread. What one of them sends waits for its end, as a message would: nothing nests."""

    def __init__(self) -> None:
        self._waiting: deque[Callable[[], None]] | None = None

    def call(self, act: Callable[[], None]) -> None:
        if self._waiting is not None:
            self._waiting.append(act)
            return
        self._waiting = waiting = deque([act])
        try:
            while waiting:
                waiting.popleft()()
        finally:
            self._waiting = None


_eager = _InTurn()


class CeleryDispatcher:
    """Sends each hint as a message that carries ids and nothing else, once all is committed.

    A message that cannot be sent is logged and never an error: the run's ``wake_at`` brings it back. Without routes
    the project's own ``task_routes`` decide where messages go. ``FLOW_APP["BUILD"]["routes"]`` names a queue per build;
    what else this process may run goes where its current build goes. ``queue`` sends everything to one queue, as a
    route of a :class:`RuntimeBuildTaskRouter` does.
    """

    def __init__(self, engine: FlowEngine, *, queue: str | None = None) -> None:
        import_module("flow_app.tasks")  # so that the project's Celery app knows them, in a web process too
        build = engine.services.options.build
        self.engine = engine
        self._queue = queue
        self._current: str | None = build.get("current")
        self._routes: Mapping[str, str] = build.get("routes", {})
        alias = getattr(engine.store, "using", None)
        elsewhere = alias is not None and alias != conf.options().database
        self._kwargs = {"using": alias} if elsewhere else {}

    def dispatch(self, task: FlowTask) -> None:
        self._dispatch(task, self._queue_of(None))

    def has_route(self, build: str | None) -> bool:
        return build in self._routes or self.engine.supports_runtime_build(build)

    def dispatch_for_build(self, build: str | None, task: FlowTask) -> None:
        self._require_route(build)
        self._dispatch(task, self._queue_of(build))

    def dispatch_step(self, step: RunStep, *, build: str | None, queue: str | None) -> None:
        """Send a step of its own. Its ``queue`` is used as it is written; without one its run's build decides."""
        if queue is None and self._queue is None:  # with a queue of its own it is some router's route: that one knows
            self._require_route(build)
        self._dispatch(step, queue or self._queue_of(build))

    def same_workers(self, run_id: str, build: str | None) -> bool:
        """Do the drives of this run and its steps go to one queue? The project's own routing may part them.

        In eager mode nothing goes anywhere, and a rate limit counts messages.
        """
        if current_app.conf.task_always_eager or current_app.tasks["flow_app.run_step"].rate_limit:
            return False
        if self._queue_of(build) is not None:
            return True
        drive, step = _destination("flow_app.drive_run", run_id), _destination("flow_app.run_step", run_id, "", 1)
        return bool(drive == step)

    def _require_route(self, build: str | None) -> None:
        if not self.has_route(build):
            raise RuntimeBuildRouteNotFoundError(build)

    def _queue_of(self, build: str | None) -> str | None:
        """None: as the project routes."""
        if self._queue is not None:
            return self._queue
        for name in (build, self._current):
            if name is not None and name in self._routes:
                return self._routes[name]
        return None

    def _dispatch(self, task: FlowTask, queue: str | None) -> None:
        if isinstance(task, tasks.DriveRun | tasks.ResumeScheduledRun):
            self._send("flow_app.drive_run", (task.run_id,), queue)
        elif isinstance(task, RunStep):
            self._send("flow_app.run_step", (task.run_id, task.step_id, task.attempt), queue)
        elif isinstance(task, tasks.ResumeDueRetries):
            for run_id in dict.fromkeys(run_id for run_id, _ in self.engine.list_due_retries(task.now)):
                self.dispatch_for_build(self.engine.runtime_build_id(run_id), tasks.DriveRun(run_id))
        else:  # it has a payload or a token, which no broker gets to see: the verb commits it, and sends a hint
            handle_task(self.engine, task)

    def _send(self, name: str, args: tuple[Any, ...], queue: str | None) -> None:
        options = {} if queue is None else {"queue": queue}
        self.engine.store.on_commit(partial(_publish, name, args, self._kwargs, options))


def _destination(name: str, *args: Any) -> Any:
    """Where the project sends a task: as it is declared or annotated, and as its routers say."""
    task = current_app.tasks[name]
    stated = {part: getattr(task, part, None) for part in ("queue", "exchange", "routing_key")}
    options = {part: value for part, value in stated.items() if value is not None}
    return current_app.amqp.router.route(options, name, args, {})


def _publish(name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any], options: Mapping[str, Any]) -> None:
    if current_app.conf.task_always_eager:
        _eager.call(partial(_apply, name, args, kwargs, options))
    else:
        _apply(name, args, kwargs, options)


def _apply(name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any], options: Mapping[str, Any]) -> None:
    labels = {"run_id": args[0]}
    try:
        current_app.tasks[name].apply_async(args, {**kwargs}, retry=True, retry_policy=_ONE_MORE_TRY, **options)
    except OperationalError as error:
        logger.warning("%s%r was not sent and will be later: the broker is away (%s)", name, args, error, extra=labels)
    except Exception:
        logger.exception("%s%r was not sent and will be later", name, args, extra=labels)
