"""What the page of one run shows. A fixed number of queries and a bounded page, however long the history is."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from zlib import crc32

from django.http import QueryDict

from flow_app.admin.history import History, read_history
from flow_app.admin.picture import Picture, draw
from flow_app.core.snapshot import HookStatus, RunStatus
from flow_app.models import ChildOperation, Event, Hook, Progress, Run
from flow_app.presenting import Badge, Excerpt, badges, excerpt_of, headline, look, mask_token, why
from flow_app.presenting.marks import read_marks
from flow_app.presenting.payloads import Redact, cut
from flow_app.presenting.timeline import timeline
from flow_app.presenting.waiting import described

#: Hooks, progress entries and links on the page.
MOST = 50
#: Events that the timeline looks at: of longer histories, the latest.
MARKS = 10_000

#: Names in the query string: a page of the timeline, and the event that the history begins at.
LANES, UPTO = "lanes", "upto"

_DRAWN = ("run_progress_recorded", "child_operation_linked")


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


@dataclass(frozen=True, slots=True)
class RunPage:
    """``output`` and ``input`` are None for who may not see payloads; ``version`` changes with what is shown."""

    run: Run
    now: datetime
    is_open: bool
    badges: list[Badge]
    headline: str
    why: str
    labels: Mapping[str, str]
    error: Excerpt | None
    input: Excerpt | None
    output: Excerpt | None
    shows_payloads: bool
    picture: Picture | None
    is_picture_whole: bool
    history: History
    hooks: list[HookLine]
    progress: list[ProgressLine]
    children: list[ChildLine]
    parents: list[ChildLine]
    version: str
    lanes_query: str
    history_query: str


def read_page(run: Run, *, asked: QueryDict, shows_payloads: bool, redact: Redact) -> RunPage:
    """Everything on the page of a run. ``asked`` is its query string."""
    now = datetime.now(UTC)
    waiting = look(run)
    ends = _ends(run) if shows_payloads else {}
    drawn = _events(run).exclude(type__in=_DRAWN).order_by("-sequence")[:MARKS]
    upto = min(_number(asked.get(UPTO)) or run.last_sequence, run.last_sequence)
    return RunPage(
        run=run,
        now=now,
        is_open=not RunStatus(run.status).is_terminal,
        badges=badges(run, now=now),
        headline=headline(run, waiting, now=now),
        why=why(run, waiting, now=now),
        labels=_object(run.labels),
        error=cut(run.error) if run.error else None,
        input=_payload(ends, "input", redact),
        output=_payload(ends, "output", redact),
        shows_payloads=shows_payloads,
        picture=draw(timeline(reversed(read_marks(drawn))), now=now, page=_number(asked.get(LANES))),
        is_picture_whole=run.last_sequence <= MARKS,
        history=read_history(run, upto=upto, redact=redact if shows_payloads else None),
        hooks=_hooks(run, redact=redact if shows_payloads else None),
        progress=_progress(run),
        children=_children(run),
        parents=_parents(run),
        version=version(run, now=now),
        lanes_query=_kept(asked, LANES),
        history_query=_kept(asked, UPTO),
    )


def version(run: Run, *, now: datetime) -> str:
    """Something that changes when the page would: a live page asks for no more than it has not yet seen."""
    shown = (
        run.last_sequence, run.status, run.wake_reason, run.wake_at, run.dispatches, run.lost_leases, run.blocked_count,
        run.paused_at, run.steps_out, [badge.key for badge in badges(run, now=now)],
    )  # fmt: skip
    return f"{run.last_sequence}-{crc32(repr(shown).encode())}"


def _events(run: Run) -> Any:
    return Event.objects.using(run._state.db).filter(run=run.pk)


def _number(text: str | None) -> int | None:
    """A small positive number from a query string, None for anything else."""
    return int(text) if text and text.isascii() and text.isdigit() and 0 < len(text) < 16 else None


def _kept(asked: QueryDict, name: str) -> str:
    """What a link repeats of the query string, so that paging one part of the page leaves the other as it is."""
    number = _number(asked.get(name))
    return "" if number is None else f"{name}={number}&"


def _object(text: str) -> dict[str, Any]:
    tree = json.loads(text or "{}")
    return tree if isinstance(tree, dict) else {}


def _ends(run: Run) -> dict[str, Any]:
    """The bodies of the first and the last event in one: they hold the input, and the output or error."""
    payloads = _events(run).filter(sequence__in=[1, run.last_sequence], type__in=["run_created", "run_completed"])
    return {name: value for text in payloads.values_list("payload", flat=True) for name, value in _object(text).items()}


def _payload(body: Mapping[str, Any], name: str, redact: Redact) -> Excerpt | None:
    return excerpt_of(body[name], redact=redact) if name in body else None


def _hooks(run: Run, *, redact: Redact | None) -> list[HookLine]:
    """The latest hooks; what they received only for who may see payloads."""
    rows = Hook.objects.using(run._state.db).filter(run=run.pk).order_by("-pk")
    return [_hook(hook, redact=redact) for hook in rows[:MOST]]


def _hook(hook: Hook, *, redact: Redact | None) -> HookLine:
    kind, subject = described(hook.metadata)
    received = None
    if redact is not None and hook.received is not None:
        received = excerpt_of(json.loads(hook.received), redact=redact, limit=2000)
    return HookLine(
        hook_id=hook.hook_id,
        kind=kind,
        subject=subject,
        status=hook.status,
        is_active=hook.status == HookStatus.ACTIVE,
        token=mask_token(hook.token_digest),
        expires_at=hook.expires_at,
        resolved_at=hook.resolved_at,
        resolved_by=hook.resolved_by,
        received=received,
    )


def _progress(run: Run) -> list[ProgressLine]:
    rows = Progress.objects.using(run._state.db).filter(run=run.pk).order_by("-sequence")[:MOST]
    return [_progress_line(_object(row.body)) for row in rows]


def _progress_line(body: Mapping[str, Any]) -> ProgressLine:
    total = body.get("total")
    message = cut(str(body.get("message") or ""), limit=500).text
    return ProgressLine(body["progress_id"], str(body["completed"]), "" if total is None else str(total), message)


def _children(run: Run) -> list[ChildLine]:
    rows = list(ChildOperation.objects.using(run._state.db).filter(run=run.pk).order_by("-pk")[:MOST])
    keys = {row.flow_run_key for row in rows if row.flow_run_key}
    found = Run.objects.using(run._state.db).filter(run_key__in=keys).values_list("run_key", "pk")
    targets: dict[str | None, int] = dict(found) if keys else {}
    return [_child_line(row, run_key=targets.get(row.flow_run_key), run_id=row.flow_run_id or "") for row in rows]


def _parents(run: Run) -> list[ChildLine]:
    """Links from other runs to this one."""
    rows = ChildOperation.objects.using(run._state.db).filter(flow_run_key=run.run_key).select_related("run")
    rows = rows.only("body", "reference_id", "run__run_id").order_by("-pk")
    return [_child_line(row, run_key=row.run.pk, run_id=row.run.run_id) for row in rows[:MOST]]


def _child_line(row: ChildOperation, *, run_key: int | None, run_id: str) -> ChildLine:
    body = _object(row.body)
    return ChildLine(row.reference_id, body.get("kind", ""), body.get("operation_id", ""), run_key, run_id)
