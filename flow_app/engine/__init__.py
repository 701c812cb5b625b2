"""What may be done with a run: one verb or family of verbs per module, behind :class:`FlowEngine`."""

from flow_app.engine.facade import FlowEngine

__all__ = ["FlowEngine"]
