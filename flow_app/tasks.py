"""The Celery tasks. Their names are a wire format and never change; each is a hint, safe to lose and to repeat."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Any, ParamSpec

from celery import current_app, current_task, shared_task
from celery.signals import worker_shutting_down

from flow_app import conf, get_engine
from flow_app.beat.nominal import nominal_tick
from flow_app.dispatch import FlowScheduler, connections
from flow_app.engine import shutdown
from flow_app.errors import FlowError, RunNotFoundError, RuntimeBuildUnavailableError

if TYPE_CHECKING:
    from celery import Task

P = ParamSpec("P")

logger = logging.getLogger("flow_app.tasks")

#: Nothing is lost, and nothing to be repaired: another worker will do it, or none needs to.
_ORDINARY = (RunNotFoundError, RuntimeBuildUnavailableError)


def _flow_task(name: str) -> Callable[[Callable[P, object]], Task[P, None]]:
    """A task of this name. What stops a run stands on its row; the worker logs it and goes on.

    Nobody reads a result. A message whose worker died is not delivered again, for a step that kills its process would
    loop for ever: the scheduler brings the run back, and counts. No time limits: they kill without a record.
    """

    def decorate(act: Callable[P, object]) -> Task[P, None]:
        @shared_task(name=name, acks_late=True, reject_on_worker_lost=False, ignore_result=True)
        @wraps(act)
        def task(*args: P.args, **kwargs: P.kwargs) -> None:
            alias = str(kwargs.get("using") or conf.options().database)
            connections.renew(alias)
            try:
                act(*args, **kwargs)
            except FlowError as error:
                level = logging.INFO if isinstance(error, _ORDINARY) else logging.WARNING
                first = args[0] if args else ""  # an id or a name; what follows may be an input, which is not for logs
                labels = {"run_id": getattr(error, "run_id", None), "code": error.code}
                logger.log(level, "%s(%s): %s", name, first, error, extra=labels)
            else:
                connections.has_served(alias)

        return task

    return decorate


@_flow_task("flow_app.drive_run")
def drive_run(run_id: str, *, using: str | None = None) -> None:
    """Complete what is due of a run, and drive it."""
    get_engine(using).resume_scheduled_run(run_id)


@_flow_task("flow_app.run_step")
def run_step(run_id: str, step_id: str, attempt: int, *, using: str | None = None) -> None:
    """Run one attempt of a step that travels on its own."""
    get_engine(using).run_step(run_id, step_id, attempt)


@_flow_task("flow_app.tick")
def tick(*, using: str | None = None) -> None:
    """Send a hint for everything that is due."""
    FlowScheduler(get_engine(using)).tick()


@_flow_task("flow_app.start_run")
def start_run(
    workflow: str,
    input: Any = None,
    *,
    name: str | None = None,
    when: int | str | None = None,
    run_id: str | None = None,
    using: str | None = None,
) -> None:
    """Start a run; a message that comes twice starts one.

    Its id is ``run_id``, or ``name`` and the tick of the schedule ``when`` (see :mod:`flow_app.beat`), or the id of the
    message.
    """
    engine = get_engine(using)
    if run_id is None and name is not None and when is not None:
        tick_at = nominal_tick(when, at=engine.store.clock.now(), zone=current_app.timezone)
        run_id = f"{name}:{tick_at:%Y%m%dT%H%M%SZ}"
    elif run_id is None and current_task:
        run_id = current_task.request.id
    engine.start(workflow, input, run_id=run_id, labels={} if name is None else {"schedule": name})


@worker_shutting_down.connect(weak=False, dispatch_uid="flow_app.shutdown")
def _stop_at_the_next_turn(**kwargs: Any) -> None:
    """The worker's first process hears this; its children learn it from a byte of memory that they share."""
    shutdown.request()
