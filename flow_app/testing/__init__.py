"""What users of flow_app test their workflows with."""

from flow_app.testing.clock import FakeClock

__all__ = ["FakeClock"]
