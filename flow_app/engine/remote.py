"""What a step worker does: take one attempt, run its body, commit the outcome. It reads no history."""

from __future__ import annotations

from flow_app.engine.services import Services


def run_step(services: Services, run_id: str, step_id: str, attempt: int) -> bool:
    """See :meth:`FlowEngine.run_step`."""
    raise NotImplementedError
