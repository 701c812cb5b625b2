"""Workflows that do a little of everything, and a ledger of what their steps really did."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from datetime import datetime, timedelta
from threading import Lock
from typing import Any

from flow_app import ChildOperationReference, RetryPolicy, WorkflowProgress, step, workflow
from flow_app.core.context import StepContext

DELAYED = RetryPolicy.fixed(2, timedelta(seconds=5))
LENIENT = RetryPolicy.none().continue_workflow_on_failure()


class Ledger:
    """Which body ran how often: the outside world, which remembers what a process forgot."""

    def __init__(self) -> None:
        self.calls: Counter[tuple[str, int]] = Counter()
        self._lock = Lock()

    def note(self, ctx: StepContext) -> None:
        with self._lock:
            self.calls[ctx.step_id, ctx.attempt] += 1


def rich(ledger: Ledger, *, due: datetime) -> None:
    """Register ``rich`` and its child: steps, both kinds of retries, a batch, a hook, a timer, progress and a child."""
    act = _register_steps(ledger)

    @workflow("child")
    def child(ctx: Any) -> Any:
        return ctx.complete("child")

    stages: list[tuple[Callable[[Any], bool], Callable[[Any], Any]]] = [
        (lambda ctx: ctx.step_completed("load"), lambda ctx: ctx.schedule_step("load", act, {"n": 1})),
        (lambda ctx: ctx.progress("loaded"), lambda ctx: ctx.record_progress(WorkflowProgress("loaded", 1, 3))),
        (lambda ctx: ctx.step_completed("flaky"), lambda ctx: ctx.schedule_step("flaky", "flaky", None)),
        (lambda ctx: ctx.child_operation("shipment"), _link),
        (lambda ctx: ctx.step_completed("later"), lambda ctx: ctx.schedule_step("later", "flaky", retry=DELAYED)),
        (_batch_is_done, _batch),
        (lambda ctx: ctx.hook_received("approval"), lambda ctx: ctx.create_hook("approval")),
        (lambda ctx: ctx.wait_completed("pause"), lambda ctx: ctx.wait_until("pause", due)),
        (lambda ctx: ctx.step_completed("last"), lambda ctx: ctx.schedule_step("last", act, {"n": 2})),
    ]

    @workflow("rich")
    def run(ctx: Any) -> Any:
        if ctx.cancellation_request is not None:
            if not ctx.step_completed("clean"):
                return ctx.schedule_step("clean", act, {"n": 3})
            return ctx.cancel()
        for is_done, command in stages:
            if not is_done(ctx):
                return command(ctx)
        return ctx.complete([ctx.step_output("load"), ctx.step_failed("b2"), ctx.hook_payload("approval")])


def _register_steps(ledger: Ledger) -> Any:
    @step("act")
    def act(ctx: StepContext, data: Any) -> Any:
        ledger.note(ctx)
        return data

    @step("flaky")
    def flaky(ctx: StepContext) -> str:
        ledger.note(ctx)
        if ctx.attempt == 1:
            raise ValueError("not yet")
        return "at last"

    @step("hopeless")
    def hopeless(ctx: StepContext) -> None:
        ledger.note(ctx)
        raise ValueError("never")

    return act


def _link(ctx: Any) -> Any:
    child_id = f"{ctx.run_id}.child"
    return ctx.link_child_operation(ChildOperationReference("shipment", "flow", child_id, child_id))


def _batch_is_done(ctx: Any) -> bool:
    return all(ctx.step_completed(step_id) or ctx.step_failed(step_id) for step_id in ("b1", "b2", "b3"))


def _batch(ctx: Any) -> Any:
    members = [
        ctx.step("b1", "flaky"),
        ctx.step("b2", "hopeless", retry=LENIENT),
        ctx.step("b3", "act", {"n": 4}),
    ]
    return ctx.schedule_steps(members)
