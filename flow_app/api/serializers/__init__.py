"""What is read. Component names start with Flow, so that they collide with none of the project's."""

from flow_app.api.serializers.hooks import FlowHook, FlowHookDetail, metadata_of, standing_status
from flow_app.api.serializers.parts import FlowChildOperation, FlowEvent, FlowProgress, FlowSuspension
from flow_app.api.serializers.runs import FlowRun, FlowRunDetail
from flow_app.api.serializers.site import FlowProblem, FlowStanding, FlowSummary, FlowWorkflow

__all__ = [
    "FlowChildOperation",
    "FlowEvent",
    "FlowHook",
    "FlowHookDetail",
    "FlowProblem",
    "FlowProgress",
    "FlowRun",
    "FlowRunDetail",
    "FlowStanding",
    "FlowSummary",
    "FlowSuspension",
    "FlowWorkflow",
    "metadata_of",
    "standing_status",
]
