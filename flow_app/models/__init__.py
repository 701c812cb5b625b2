"""The tables. They hold no business rules: the engine decides, the store writes."""

from flow_app.models.child_operation import ChildOperation
from flow_app.models.event import Event
from flow_app.models.hook import Hook
from flow_app.models.progress import Progress
from flow_app.models.retention_hold import RetentionHold
from flow_app.models.run import Run
from flow_app.models.run_label import RunLabel
from flow_app.models.step_execution import StepExecution
from flow_app.models.tombstone import Tombstone

__all__ = [
    "ChildOperation",
    "Event",
    "Hook",
    "Progress",
    "RetentionHold",
    "Run",
    "RunLabel",
    "StepExecution",
    "Tombstone",
]
