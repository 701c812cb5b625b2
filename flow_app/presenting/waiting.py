"""What a run waits for: read for one run exactly, or for a page of runs at a glance, in one query."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from django.db.models import OuterRef, Subquery

from flow_app.core.snapshot import HookStatus, RunStatus
from flow_app.models import Event, Hook, Run
from flow_app.presenting.hook_facts import APPROVAL
from flow_app.presenting.marks import Mark, read_marks

_OPENING = ("wait_created", "step_retrying")
#: How far back the opening of what is still open is looked for.
_LATEST = 50


@dataclass(frozen=True, slots=True)
class Waiting:
    """The first thing that a run waits for. ``others`` counts what else is open.

    ``kind`` is hook, timer or retry; ``name`` may be "" where only a glance was taken, and ``since`` is then when the
    run last changed (for a hook: when it was opened). ``is_approval``: it asks people.
    """

    kind: str
    name: str
    since: datetime | None
    until: datetime | None
    others: int = 0
    is_approval: bool = False
    attempt: int = 0
    error: str = ""


def glance(runs: Iterable[Run]) -> dict[int, Waiting]:
    """What the runs of one page wait for, by their key; those that wait for nothing are left out. One query."""
    waiting = {run.pk: run for run in runs if opened(run)}
    if not waiting:
        return {}
    using = next(iter(waiting.values()))._state.db
    hooks = Hook.objects.using(using).filter(run=OuterRef("pk"), status=HookStatus.ACTIVE.value).order_by("pk")
    last = Event.objects.using(using).filter(run=OuterRef("pk"), sequence=OuterRef("last_sequence"))
    columns = [Subquery(hooks.values(name)[:1]) for name in ("hook_id", "kind", "created_at", "expires_at")]
    rows = Run.objects.using(using).filter(pk__in=waiting)
    found = rows.values_list("pk", Subquery(last.values("recorded_at")[:1]), *columns)
    return {key: _glanced(waiting[key], changed_at, *hook) for key, changed_at, *hook in found}


def _glanced(
    run: Run,
    changed_at: datetime | None,
    hook_id: str | None,
    kind: str | None,
    opened_at: datetime | None,
    expires_at: datetime | None,
) -> Waiting:
    others = opened(run) - 1
    if hook_id is not None:
        return Waiting("hook", hook_id, opened_at or changed_at, expires_at, others, is_approval=kind == APPROVAL)
    return Waiting("timer" if run.open_waits else "retry", "", changed_at, run.timer_at, others)


def opened(run: Run) -> int:
    """How many things a run waits for."""
    if RunStatus(run.status).is_terminal:
        return 0
    return run.open_waits + run.active_hooks + run.pending_retries


def look(run: Run) -> Waiting | None:
    """What this run waits for, with its name and since when. One query or two, whatever the history's length."""
    if not opened(run):
        return None
    others = opened(run) - 1
    if run.active_hooks:
        hooks = Hook.objects.using(run._state.db).filter(run=run.pk, status=HookStatus.ACTIVE.value).order_by("pk")
        hook = hooks.only("hook_id", "kind", "created_at", "expires_at").first()
        if hook is not None:
            is_approval = hook.kind == APPROVAL
            return Waiting("hook", hook.hook_id, hook.created_at, hook.expires_at, others, is_approval=is_approval)
    for mark in _openings(run):
        if mark.until == run.timer_at:
            kind = "timer" if mark.type == "wait_created" else "retry"
            return Waiting(kind, mark.name, mark.at, mark.until, others, attempt=mark.attempt, error=mark.note)
    return Waiting("timer" if run.open_waits else "retry", "", None, run.timer_at, others)


def _openings(run: Run) -> list[Mark]:
    """The latest events that opened something, newest first."""
    events = Event.objects.using(run._state.db).filter(run=run.pk, type__in=_OPENING).order_by("-sequence")
    return read_marks(events[:_LATEST])
