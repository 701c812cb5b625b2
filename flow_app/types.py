"""The types that annotations of workflows, steps, pages and reports use. Importing it needs no configured Django."""

from __future__ import annotations

from flow_app.core.commands import Command
from flow_app.core.context import StepContext, WorkflowContext
from flow_app.core.events import EventEnvelope
from flow_app.core.ports import HookRow, RunRow
from flow_app.core.snapshot import RunStatus, WorkflowRunSnapshot

__all__ = [
    "Command",
    "EventEnvelope",
    "HookRow",
    "RunRow",
    "RunStatus",
    "StepContext",
    "WorkflowContext",
    "WorkflowRunSnapshot",
]
