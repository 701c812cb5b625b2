"""Workflows for the tests of the API."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from flow_app import HookMetadata, WorkflowProgress, get_engine, step, workflow
from flow_app.types import Command, StepContext, WorkflowContext

FOR_EVER = datetime(9000, 1, 1, tzinfo=UTC)
SCHEMA = {
    "type": "object",
    "required": ["approved"],
    "properties": {"approved": {"type": "boolean"}, "amount": {"type": "number", "maximum": 100}},
}


def define() -> None:
    """Register them; in a registry that the test isolates."""

    @step("api.work")
    def work(ctx: StepContext) -> Any:
        return ctx.input

    @workflow("approval")
    def approval(ctx: WorkflowContext) -> Command:
        """Waits for an answer; its input may say what kind of hook."""
        wants = ctx.input if isinstance(ctx.input, dict) else {}
        if ctx.cancellation_request is not None:
            return ctx.cancel()
        if wants.get("bar") and ctx.progress("started") is None:
            return ctx.record_progress(WorkflowProgress("started", 1, 3, wants["bar"], details={"token": "x"}))
        if ctx.hook_received("decision"):
            return ctx.complete({"decision": ctx.hook_payload("decision")})
        if ctx.hook_expired("decision"):
            return ctx.complete("expired")
        if ctx.hook_disposed("decision"):
            return ctx.complete("withdrawn")
        metadata = HookMetadata.human_approval(wants.get("subject", "invoice:7")).with_label("team", "red")
        metadata = metadata.with_data("secret_plan", wants.get("note", "x"))
        if wants.get("schema"):
            metadata = metadata.with_payload_schema(SCHEMA if wants["schema"] is True else wants["schema"])
        expires_at = None
        if "days" in wants:
            expires_at = get_engine().store.clock.now() + timedelta(days=wants["days"])
        if ctx.hook_created("decision"):
            return ctx.wait_until("for-ever", FOR_EVER)
        return ctx.create_hook("decision", wants.get("token"), metadata, expires_at=expires_at)

    @workflow("echo")
    def echo(ctx: WorkflowContext) -> Command:
        if not ctx.step_completed("work"):
            return ctx.schedule_step("work", work, ctx.input)
        return ctx.complete(ctx.step_output("work"))

    @workflow("broken")
    def broken(ctx: WorkflowContext) -> Command:
        raise ValueError(f"no way: {ctx.input}")

    @workflow("fails_after_answer")
    def fails_after_answer(ctx: WorkflowContext) -> Command:
        if ctx.hook_received("decision"):
            raise ValueError("the drive fails")
        return ctx.create_hook("decision", "token-of-the-failing")
