"""What the page of one run shows. A fixed number of queries and a bounded page, however long the history is."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from zlib import crc32

from django.db.models import QuerySet
from django.http import QueryDict

from flow_app.admin.history import History, read_history
from flow_app.admin.picture import Picture, draw
from flow_app.admin.run_parts import (
    ChildLine,
    HookLine,
    ProgressLine,
    read_children,
    read_executions,
    read_hooks,
    read_parents,
    read_progress,
)
from flow_app.core.snapshot import RunStatus
from flow_app.models import Event, Hook, Run, StepExecution
from flow_app.presenting import Badge, Excerpt, badges, ends_of, excerpt_of, headline, look, why
from flow_app.presenting.labels import first_labels, how_many_more
from flow_app.presenting.marks import read_marks
from flow_app.presenting.payloads import EXCERPT, Redact, cut
from flow_app.presenting.timeline import timeline
from flow_app.presenting.tracebacks import ending_of, traceback_of

#: Events that the timeline looks at: of longer histories, the latest.
MARKS = 10_000

#: Names in the query string: a page of the timeline, and the event that the history begins at.
LANES, UPTO = "lanes", "upto"

_LABELS = 100
_DRAWN = ("run_progress_recorded", "child_operation_linked")


@dataclass(frozen=True, slots=True)
class RunPage:
    """``output``, ``input`` and ``traceback`` are None for who may not see payloads.

    ``version`` changes with what is shown.
    """

    run: Run
    now: datetime
    is_open: bool
    badges: list[Badge]
    headline: str
    why: str
    labels: Mapping[str, str]
    more_labels: str
    error: Excerpt | None
    traceback: Excerpt | None
    input: Excerpt | None
    output: Excerpt | None
    shows_payloads: bool
    picture: Picture | None
    is_picture_whole: bool
    history: History
    executions: list[StepExecution]
    hooks: list[HookLine]
    progress: list[ProgressLine]
    children: list[ChildLine]
    parents: list[ChildLine]
    version: str
    lanes_query: str
    history_query: str


def read_page(
    run: Run,
    *,
    asked: QueryDict,
    visible: QuerySet[Run],
    visible_hooks: QuerySet[Hook],
    shows_payloads: bool,
    redact: Redact,
) -> RunPage:
    """Everything on the page of a run. ``asked`` is its query string, ``visible`` the runs that the user may see."""
    now = datetime.now(UTC)
    waiting = look(run)
    ends = ends_of(run) if shows_payloads else {}
    drawn = _events(run).exclude(type__in=_DRAWN).order_by("-sequence")[:MARKS]
    labels = _object(run.labels)
    upto = min(_number(asked.get(UPTO)) or run.last_sequence, run.last_sequence)
    return RunPage(
        run=run,
        now=now,
        is_open=not RunStatus(run.status).is_terminal,
        badges=badges(run, now=now),
        headline=headline(run, waiting, now=now),
        why=why(run, waiting, now=now),
        labels=first_labels(labels, most=_LABELS),
        more_labels=how_many_more(labels, most=_LABELS),
        error=cut(run.error) if run.error else None,
        traceback=ending_of(traceback_of(run), redact=redact, limit=EXCERPT) if shows_payloads else None,
        input=_payload(ends, "input", redact),
        output=_payload(ends, "output", redact),
        shows_payloads=shows_payloads,
        picture=draw(timeline(reversed(read_marks(drawn))), now=now, page=_number(asked.get(LANES))),
        is_picture_whole=run.last_sequence <= MARKS,
        history=read_history(run, upto=upto, redact=redact if shows_payloads else None),
        executions=read_executions(run) if run.steps_out else [],
        hooks=read_hooks(visible_hooks, run, redact=redact if shows_payloads else None),
        progress=read_progress(run),
        children=read_children(run, visible=visible),
        parents=read_parents(run, visible=visible),
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


def _payload(body: Mapping[str, Any], name: str, redact: Redact) -> Excerpt | None:
    return excerpt_of(body[name], redact=redact) if name in body else None
