"""What belongs to a run besides its history: hooks, progress and links, so many of each as a page can show."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeVar

from django.db.models import Case, Model, QuerySet, When
from django.db.models.functions import Length
from django.db.models.lookups import LessThanOrEqual

from flow_app.admin.history import LARGEST
from flow_app.core.snapshot import HookStatus
from flow_app.models import ChildOperation, Hook, Progress, Run, StepExecution
from flow_app.presenting import Excerpt, excerpt_of, facts_of, mask_token
from flow_app.presenting.payloads import Redact, cut

M = TypeVar("M", bound=Model)

#: Hooks, progress entries and links on the page.
MOST = 50


@dataclass(frozen=True, slots=True)
class HookLine:
    hook_id: str
    kind: str
    subject: str
    status: str
    is_active: bool
    token: str
    expires_at: datetime | None
    resolved_at: datetime | None
    resolved_by: str
    received: Excerpt | None


@dataclass(frozen=True, slots=True)
class ProgressLine:
    progress_id: str
    completed: str
    total: str
    message: str


@dataclass(frozen=True, slots=True)
class ChildLine:
    reference_id: str
    kind: str
    operation_id: str
    run_key: int | None
    run_id: str


def read_hooks(hooks: QuerySet[Hook], run: Run, *, redact: Redact | None) -> list[HookLine]:
    """The run's latest hooks among those; what they received only for who may see payloads."""
    rows = _light(hooks.filter(run=run.pk), "metadata", "received").order_by("-pk")
    return [_hook(hook, redact=redact) for hook in rows[:MOST]]


def _light(rows: QuerySet[M], *columns: str) -> QuerySet[M]:
    """Rows without these columns of JSON: each is read as ``small_…``, and only where a list can show it, else NULL."""
    small = {f"small_{name}": Case(When(LessThanOrEqual(Length(name), LARGEST), then=name)) for name in columns}
    light: QuerySet[M] = rows.defer(*columns).annotate(**small)
    return light


def _hook(hook: Any, *, redact: Redact | None) -> HookLine:
    facts = facts_of(hook.small_metadata)
    received = None
    if redact is not None and hook.small_received is not None:
        received = excerpt_of(json.loads(hook.small_received), redact=redact, limit=2000)
    return HookLine(
        hook_id=hook.hook_id,
        kind=facts.kind,
        subject=facts.subject,
        status=hook.status,
        is_active=hook.status == HookStatus.ACTIVE,
        token=mask_token(hook.token_digest),
        expires_at=hook.expires_at,
        resolved_at=hook.resolved_at,
        resolved_by=hook.resolved_by,
        received=received,
    )


def read_executions(run: Run) -> list[StepExecution]:
    """The steps that are with the workers, or on their way."""
    rows = StepExecution.objects.using(run._state.db).filter(run=run.pk).defer("input", "retry", "spec")
    return list(rows.order_by("pk")[:MOST])


def read_progress(run: Run) -> list[ProgressLine]:
    rows = _light(Progress.objects.using(run._state.db).filter(run=run.pk), "body").order_by("-sequence")
    return [_progress_line(row) for row in rows[:MOST]]


def _progress_line(row: Any) -> ProgressLine:
    body = _tree(row.small_body)
    completed, total = body.get("completed", "…"), body.get("total", "")
    return ProgressLine(row.progress_id, str(completed), str(total), cut(body.get("message", ""), limit=500).text)


def read_children(run: Run, *, visible: QuerySet[Run]) -> list[ChildLine]:
    """Links to other work; those to runs that are not among the visible lead nowhere."""
    found = ChildOperation.objects.using(run._state.db).filter(run=run.pk)
    rows = list(_light(found, "body").order_by("-pk")[:MOST])
    keys = {row.flow_run_key for row in rows if row.flow_run_key}
    runs = visible.filter(run_key__in=keys).values_list("run_key", "pk")
    targets: dict[str | None, int] = dict(runs) if keys else {}
    return [_child_line(row, run_key=targets.get(row.flow_run_key), run_id=row.flow_run_id or "") for row in rows]


def read_parents(run: Run, *, visible: QuerySet[Run]) -> list[ChildLine]:
    """Links from the visible ones of other runs to this one."""
    found = ChildOperation.objects.using(run._state.db).filter(flow_run_key=run.run_key, run__in=visible.order_by())
    rows = _light(found.select_related("run").only("reference_id", "run__run_id"), "body").order_by("-pk")
    return [_child_line(row, run_key=row.run.pk, run_id=row.run.run_id) for row in rows[:MOST]]


def _child_line(row: Any, *, run_key: int | None, run_id: str) -> ChildLine:
    body = _tree(row.small_body)
    return ChildLine(row.reference_id, body.get("kind", ""), body.get("operation_id", ""), run_key, run_id)


def _tree(text: str | None) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(text or "{}")
    return found
