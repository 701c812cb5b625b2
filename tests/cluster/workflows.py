"""Workflows for processes that are killed: every step writes into the ledger when it begins and when it ends."""

from __future__ import annotations

import os
import signal
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

from flow_app import RetryPolicy, step, workflow
from flow_app.types import StepContext
from tests.cluster.given import given
from tests.cluster.ledger import Ledger

STUBBORN = RetryPolicy.none().continue_workflow_on_failure()


def ledger() -> Ledger:
    return Ledger(Path(given()["folder"]) / "ledger")


@step("cluster.work")
def work(ctx: StepContext, data: dict[str, Any]) -> str:
    """Take ``pause`` seconds and, with ``hold``, until the file of that name is there."""
    book = ledger()
    book.note("begin", ctx)
    time.sleep(data.get("pause", 0))
    if data.get("hold"):
        wait_for(Path(given()["folder"]) / data["hold"])
    book.note("end", ctx)
    return ctx.step_id


@step("cluster.poison")
def poison(ctx: StepContext) -> None:
    ledger().note("begin", ctx)
    os.kill(os.getpid(), signal.SIGKILL)


def wait_for(path: Path, *, seconds: float = 60) -> None:
    give_up = time.monotonic() + seconds
    while not path.exists() and time.monotonic() < give_up:
        time.sleep(0.01)


@workflow("cluster.chain")
def chain(ctx: Any) -> Any:
    """Input: ``steps``, how many, and what each of them is given."""
    for index in range(ctx.input["steps"]):
        if not ctx.step_completed(f"s{index}"):
            return ctx.schedule_step(f"s{index}", work, ctx.input)
    return ctx.complete(ctx.input["steps"])


@workflow("cluster.batch")
def batch(ctx: Any) -> Any:
    """Input: ``steps``, how many at once; one more follows, ``after``."""
    ids = [f"b{index}" for index in range(ctx.input["steps"])]
    if not all(ctx.step_completed(step_id) for step_id in ids):
        return ctx.schedule_steps([ctx.step(step_id, work, ctx.input) for step_id in ids])
    if not ctx.step_completed("after"):
        return ctx.schedule_step("after", work, {})
    return ctx.complete([ctx.step_output(step_id) for step_id in ids])


@workflow("cluster.stoppable")
def stoppable(ctx: Any) -> Any:
    """Batches without end; asked to stop, it cleans up."""
    if ctx.cancellation_request is not None:
        return ctx.cancel() if ctx.step_completed("clean") else ctx.schedule_step("clean", work, {})
    for round_ in range(100):
        ids = [f"r{round_}.{index}" for index in range(3)]
        if not all(ctx.step_completed(step_id) for step_id in ids):
            return ctx.schedule_steps([ctx.step(step_id, work, ctx.input) for step_id in ids])
    return ctx.complete()


@workflow("cluster.approval")
def approval(ctx: Any) -> Any:
    """A step, an answer from outside, and a step."""
    if not ctx.step_completed("before"):
        return ctx.schedule_step("before", work, ctx.input)
    if not ctx.hook_received("answer"):
        return ctx.create_hook("answer")
    if not ctx.step_completed("after"):
        return ctx.schedule_step("after", work, ctx.input)
    return ctx.complete(ctx.hook_payload("answer"))


@workflow("cluster.timer")
def timer(ctx: Any) -> Any:
    """Wait until ``at``, then one step."""
    if not ctx.wait_completed("pause"):
        return ctx.wait_until("pause", ctx.input["at"])
    if not ctx.step_completed("after"):
        return ctx.schedule_step("after", work, {})
    return ctx.complete("late")


@workflow("cluster.deadly")
def deadly(ctx: Any) -> Any:
    if ctx.step_failed("poison"):
        return ctx.complete(ctx.step_failed("poison"))
    return ctx.schedule_step("poison", poison, retry=STUBBORN)


@step("cluster.limited", retry=STUBBORN, timeout=timedelta(seconds=1), dispatch="task")
def limited(ctx: StepContext, data: dict[str, Any]) -> str:
    """Hangs until it is let go; then its heartbeat tells whether anybody waits."""
    book = ledger()
    book.note("begin", ctx)
    wait_for(Path(given()["folder"]) / data["hold"])
    try:
        ctx.heartbeat()
    finally:
        book.note("end", ctx)
    return "too late"


@workflow("cluster.hangs")
def hangs(ctx: Any) -> Any:
    error = ctx.step_failed("s")
    return ctx.complete(error) if error else ctx.schedule_step("s", limited, ctx.input)
