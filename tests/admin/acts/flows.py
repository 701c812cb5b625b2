"""Small workflows that wait for what the acts do to them."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.utils import timezone

from flow_app import HookMetadata, RetryPolicy, get_engine, step, workflow
from flow_app.errors import RuntimeFailureError
from flow_app.models import Event, Hook, Run

HOUR = timedelta(hours=1)


def register() -> None:
    workflow("asks")(asks)
    workflow("sleeps")(sleeps)
    workflow("stuck")(stuck)
    workflow("tries")(tries)
    step("shaky", retry=RetryPolicy.fixed(3, HOUR))(shaky)


def asks(ctx: Any) -> Any:
    """Asks for an approval, and cleans up when it is cancelled."""
    if ctx.cancellation_request is not None:
        return ctx.cancel()
    if ctx.hook_received("approval"):
        return ctx.complete(ctx.hook_payload("approval"))
    if ctx.hook_disposed("approval"):
        return ctx.complete("withdrawn")
    return ctx.create_hook("approval", metadata=(ctx.input or {}).get("metadata", approval().to_value()))


def approval(subject: str = "order:7") -> HookMetadata:
    return HookMetadata.human_approval(subject).with_label("region", "north").with_data("amount", 12)


def sleeps(ctx: Any) -> Any:
    if ctx.cancellation_request is not None:
        return ctx.cancel()
    return ctx.complete("awake") if ctx.wait_completed("nap") else ctx.wait_until("nap", ctx.input)


TROUBLE = {"stuck": True, "shaky": True}


def stuck(ctx: Any) -> Any:
    if TROUBLE["stuck"]:
        raise ValueError("cannot decide")
    return ctx.complete("decided")


def shaky() -> str:
    if TROUBLE["shaky"]:
        raise ValueError("not yet")
    return "done"


def tries(ctx: Any) -> Any:
    return ctx.complete(ctx.step_output("s")) if ctx.step_completed("s") else ctx.schedule_step("s", "shaky")


def run_of(name: str, given: Any = None, **stated: Any) -> Run:
    """A run of one of these workflows, as its row stands once it waits."""
    if name == "sleeps":
        given = timezone.now() + HOUR
    try:
        run_id = get_engine().start(name, given, **stated)
    except RuntimeFailureError:
        run_id = stated["run_id"]
    return Run.objects.with_id(run_id).get()


def hook_of(run: Run) -> Hook:
    return Hook.objects.get(run=run)


def story(run: Run) -> list[str]:
    return list(Event.objects.filter(run=run).order_by("sequence").values_list("type", flat=True))
