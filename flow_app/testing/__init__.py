"""What users of flow_app test their workflows with."""

from flow_app.testing.clock import FakeClock
from flow_app.testing.engine import FlowTestEngine, SimulatedCrash

__all__ = ["FakeClock", "FlowTestEngine", "SimulatedCrash"]
