"""Runs to look at: small workflows, and long histories that no workflow has to be driven through."""

from __future__ import annotations

from contextlib import suppress
from datetime import timedelta
from typing import Any

from django.urls import reverse
from django.utils import timezone

from flow_app import (
    ChildOperationReference,
    HookMetadata,
    RetryPolicy,
    WorkflowProgress,
    get_engine,
    step,
    workflow,
)
from flow_app.core.events import Event, HookCreated, StepCompleted, StepCreated, StepStarted
from flow_app.core.payload import Payload
from flow_app.core.snapshot import RunStatus
from flow_app.core.tokens import digest
from flow_app.errors import RuntimeFailureError
from flow_app.models import Run
from flow_app.models.keys import text_key
from flow_app.store import DjangoEventStore
from tests.store.support import add, begin

HOUR = timedelta(hours=1)
#: Markup of every kind that a page could take for its own.
EVIL = "<script>alert(1)</script><img src=x onerror=alert(2)>\"'`--></title></svg>"


def register() -> None:
    for story in (order, nap, stuck, tries, fails):
        workflow(story.__name__)(story)
    step("say")(say)
    step("shaky", retry=RetryPolicy.fixed(3, HOUR))(shaky)
    step("breaks", retry=RetryPolicy.none())(breaks)


def say(what: Any) -> Any:
    return what


def shaky() -> None:
    raise ValueError(f"not yet {EVIL}")


def breaks() -> None:
    raise ValueError("the machine is on fire")


def order(ctx: Any) -> Any:
    """A step, progress, and an approval that somebody has to give."""
    if ctx.cancellation_request is not None:
        return ctx.cancel()
    if not ctx.step_completed("check"):
        return ctx.schedule_step("check", "say", ctx.input)
    if ctx.progress("half") is None:
        return ctx.record_progress(WorkflowProgress("half", 1, 2, "half of it"))
    if not ctx.hook_received("approval"):
        metadata = HookMetadata.human_approval("order:7")
        return ctx.create_hook("approval", metadata=metadata, expires_at=ctx.input.get("until"))
    return ctx.complete({"answer": ctx.hook_payload("approval")})


def nap(ctx: Any) -> Any:
    return ctx.complete("awake") if ctx.wait_completed("nap") else ctx.wait_until("nap", ctx.input)


def stuck(ctx: Any) -> Any:
    raise ValueError("cannot decide")


def tries(ctx: Any) -> Any:
    return ctx.schedule_step("s", "shaky")


def fails(ctx: Any) -> Any:
    return ctx.schedule_step("s", "breaks")


def run_of(name: str, about: Any = None, **stated: Any) -> Run:
    """A run of one of these workflows, as its row stands once it has stopped."""
    if name == "nap":
        about = timezone.now() + HOUR
    if name == "order":
        about = about or {"amount": 12}
    run_id = stated.setdefault("run_id", f"{name}-1")
    with suppress(RuntimeFailureError):
        get_engine().start(name, about, **stated)
    return Run.objects.with_id(run_id).get()


def fresh(run: Run) -> Run:
    return Run.objects.get(pk=run.pk)


def linked(parent: Run, child: Run) -> None:
    reference = ChildOperationReference("part", "flow", "op-1", flow_run_id=child.run_id)
    get_engine().link_child_operation(parent.run_id, reference)


def long_run(steps: int, *, size: int = 10, run_id: str = "long", name: str = "s{}") -> Run:
    """A run with three events for each step, whose outputs have so many characters."""
    events: list[Event] = []
    for number in range(steps):
        step_id = name.format(number)
        events += [
            StepCreated(step_id, "say", Payload.of({"n": number}), RetryPolicy()),
            StepStarted(step_id, 1),
            StepCompleted(step_id, Payload.of("x" * size)),
        ]
    store = DjangoEventStore()
    row = begin(store, run_id, workflow="order")
    for start in range(0, len(events), 300):
        row = add(store, row, *events[start : start + 300])
    return Run.objects.with_id(run_id).get()


def many_hooks(count: int) -> Run:
    store = DjangoEventStore()
    hooks = [HookCreated(f"h{n}", digest(f"token {n}"), Payload.of({"kind": "x"})) for n in range(count)]
    row = begin(
        store, "hooked", *hooks, status=RunStatus.SUSPENDED, active_hooks=count, wake_at=None, wake_reason="hook"
    )
    return Run.objects.with_id(row.run_id).get()


def many_runs(count: int, *, prefix: str = "many", **columns: Any) -> list[Run]:
    """Rows without a history, for lists."""
    now = timezone.now()
    ended = {"status": RunStatus.COMPLETED.value, "wake_reason": "ended", "finished_at": now, "last_sequence": 2}
    columns = {"workflow": "order", "version": "1", "created_at": now, **ended, **columns}
    ids = [f"{prefix}-{number:05}" for number in range(count)]
    made = [Run(run_id=run_id, run_key=text_key(run_id), **columns) for run_id in ids]
    return Run.objects.bulk_create(made)


# --- addresses ------------------------------------------------------------------------------------------------------


def runs(query: str = "") -> str:
    return reverse("admin:flow_app_run_changelist") + query


def page(run: Run, query: str = "") -> str:
    return reverse("admin:flow_app_run_change", args=[run.pk]) + query


def live(run: Run, query: str = "") -> str:
    return reverse("admin:flow_app_run_live", args=[run.pk]) + query
