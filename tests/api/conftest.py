from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.contrib.auth.models import Permission
from django.core.cache import cache
from rest_framework.test import APIClient

from flow_app import HookMetadata, WorkflowProgress, get_engine, step, workflow
from flow_app.authoring import registry
from flow_app.engine import FlowEngine
from flow_app.testing import FakeClock
from flow_app.types import Command, StepContext, WorkflowContext

ALL = ("view_run", "view_hook", "change_run", "start_run", "resume_hook", "cancel_run", "terminate_run", "operate_run",
       "view_payload")  # fmt: skip
SCHEMA = {
    "type": "object",
    "required": ["approved"],
    "properties": {"approved": {"type": "boolean"}, "amount": {"type": "number", "maximum": 100}},
}


@pytest.fixture(autouse=True)
def _registered() -> Iterator[None]:
    """What tests register is forgotten after them; nobody has called before."""
    cache.clear()
    with registry.workflows.isolated(), registry.steps.isolated():
        define()
        yield


def define() -> None:
    """The workflows of these tests."""

    @step("api.work")
    def work(ctx: StepContext) -> Any:
        return ctx.input

    @workflow("approval")
    def approval(ctx: WorkflowContext) -> Command:
        """Waits for an answer; its input may say what kind of hook."""
        wants = ctx.input or {}
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


from datetime import UTC, datetime  # noqa: E402

FOR_EVER = datetime(9000, 1, 1, tzinfo=UTC)


@pytest.fixture
def engine() -> FlowEngine:
    return get_engine()


@pytest.fixture
def clock(engine: FlowEngine, monkeypatch: pytest.MonkeyPatch) -> FakeClock:
    """Time that stands still."""
    clock = FakeClock()
    monkeypatch.setattr(engine.store, "clock", clock)
    return clock


@pytest.fixture
def user_with() -> Callable[..., Any]:
    """A user with permissions of this app, by name."""

    def make(*codenames: str, name: str = "ada") -> Any:
        user = get_user_model().objects.create_user(name)
        found = Permission.objects.filter(content_type__app_label="flow_app", codename__in=codenames)
        assert len(found) == len(codenames)
        user.user_permissions.set(found)
        return get_user_model().objects.get(pk=user.pk)

    return make


@pytest.fixture
def client_with(user_with: Callable[..., Any]) -> Callable[..., APIClient]:
    def make(*codenames: str, name: str = "ada") -> APIClient:
        client = APIClient()
        client.force_authenticate(user_with(*codenames, name=name))
        return client

    return make


@pytest.fixture
def api(client_with: Callable[..., APIClient]) -> APIClient:
    """A client that may do everything."""
    return client_with(*ALL)


@pytest.fixture
def anonymous() -> APIClient:
    return APIClient()
