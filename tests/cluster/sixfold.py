"""A dispatcher under which every message arrives six times."""

from __future__ import annotations

from typing import Any

from flow_app.core.tasks import FlowTask
from flow_app.dispatch import CeleryDispatcher


class SixfoldDispatcher(CeleryDispatcher):
    def dispatch_for_build(self, build: str | None, task: FlowTask) -> None:
        for _ in range(6):
            super().dispatch_for_build(build, task)

    def dispatch_step(self, step: Any, **kwargs: Any) -> None:
        for _ in range(6):
            super().dispatch_step(step, **kwargs)
