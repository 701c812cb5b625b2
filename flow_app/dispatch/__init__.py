"""How work travels: dispatchers, the scheduler, and what a worker does with a task."""

from flow_app.dispatch.handling import handle_task
from flow_app.dispatch.inline import InlineDispatcher
from flow_app.dispatch.router import RuntimeBuildTaskRouter
from flow_app.dispatch.scheduler import FlowScheduler, TickReport

__all__ = ["FlowScheduler", "InlineDispatcher", "RuntimeBuildTaskRouter", "TickReport", "handle_task"]
