"""How work travels: dispatchers, the scheduler, and what a worker does with a task."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from flow_app.dispatch.handling import handle_task
from flow_app.dispatch.inline import InlineDispatcher
from flow_app.dispatch.router import RuntimeBuildTaskRouter
from flow_app.dispatch.scheduler import FlowScheduler, TickReport

if TYPE_CHECKING:
    from flow_app.dispatch.celery import CeleryDispatcher

__all__ = [
    "CeleryDispatcher",
    "FlowScheduler",
    "InlineDispatcher",
    "RuntimeBuildTaskRouter",
    "TickReport",
    "handle_task",
]


def __getattr__(name: str) -> Any:
    if name == "CeleryDispatcher":  # loaded when asked for: flow_app needs no Celery
        return import_module("flow_app.dispatch.celery").CeleryDispatcher
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
