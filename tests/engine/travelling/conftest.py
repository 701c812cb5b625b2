from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from flow_app import step, workflow
from flow_app.core.context import StepContext
from tests.engine.mailbox import Broker


@pytest.fixture
def broker() -> Broker:
    return Broker()


@pytest.fixture
def calls() -> Counter[str]:
    return Counter()


@pytest.fixture
def batch(calls: Counter[str]) -> list[list[str]]:
    """Workflow ``batch``: three members, then their outputs. Returns what it saw completed, call by call."""
    seen: list[list[str]] = []

    @step("job")
    def job(ctx: StepContext) -> str:
        calls[ctx.step_id] += 1
        return ctx.step_id.upper()

    @workflow("batch")
    def run(ctx: Any) -> Any:
        seen.append([step_id for step_id in "abc" if ctx.step_completed(step_id)])
        if len(seen[-1]) < 3:
            return ctx.schedule_steps([ctx.step(step_id, "job") for step_id in "abc"])
        return ctx.complete([ctx.step_output(step_id) for step_id in "abc"])

    return seen
