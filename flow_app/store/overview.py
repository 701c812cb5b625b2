"""What an operator asks of all runs together. Reads whole tables where it must: for a console, not for a hot path."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db.models import Count, Min

from flow_app.models import Run, StepExecution
from flow_app.models.run import RunQuerySet
from flow_app.store.reading import Reading

#: Runs that are named of a group, the oldest first.
NAMED = 5


@dataclass(frozen=True, slots=True)
class Blocked:
    """Open runs that cannot go on for one reason. ``text`` is what the oldest of them says."""

    code: str
    count: int
    since: datetime
    text: str
    run_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Named:
    """How many there are, since when the oldest is so, and the first of them by name."""

    count: int
    since: datetime | None
    run_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Paused(Named):
    """``by``: who paused those that are named, "" where that was not said; in their order."""

    by: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Untaken:
    """What was hinted at again and again, and no worker took: steps of one name and queue, or runs (``step`` None)."""

    step: str | None
    queue: str | None
    build: str | None
    count: int
    run_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Overview:
    """``counts`` are those of FlowEngine.run_summary, by status and of what is open. ``builds`` counts open runs."""

    at: datetime
    counts: dict[str, int]
    builds: dict[str | None, int]
    due: Named
    overdue: Named
    steps_out: int
    steps_overdue: Named
    blocked: tuple[Blocked, ...]
    paused: Paused
    losing_workers: Named
    untaken: tuple[Untaken, ...]


class OverviewStore(Reading):
    """Works on the tables of a :class:`~flow_app.store.orm.DjangoEventStore` of the same alias."""

    def overview(self, *, now: datetime, late: timedelta, many_losses: int = 2, many_hints: int = 4) -> Overview:
        """``late``: what is due for longer is overdue. ``many_losses``: workers lost in a row that are many.

        ``many_hints``: what so many messages were sent for since a worker last had it is not taken.
        """
        open_runs, steps = self._runs().open(), StepExecution.objects.using(self.using)
        waiting = open_runs.exclude(lease_expires_at__gt=now)  # who drives a run leaves its wake-up behind
        return Overview(
            at=now,
            counts=self.summary(),
            builds=dict(open_runs.order_by().values_list("build").annotate(Count("id"))),
            due=_named(waiting.due(now), "wake_at"),
            overdue=_named(waiting.due(now - late), "wake_at"),
            steps_out=steps.count(),
            steps_overdue=_named(steps.due(now - late), "wake_at", run_id="run__run_id"),
            blocked=self._blocked(),
            paused=_paused(open_runs.paused()),
            losing_workers=_named(open_runs.filter(lost_leases__gte=many_losses), "created_at"),
            untaken=(
                *_untaken(waiting.awake().filter(dispatches__gte=many_hints)),
                *_untaken_steps(steps.filter(dispatches__gte=many_hints, run__paused_at=None)),
            ),
        )

    def _runs(self) -> RunQuerySet:
        return Run.objects.using(self.using)

    def _blocked(self) -> tuple[Blocked, ...]:
        """By reason, the most frequent first. A run that is paused waits for its operator, not for a fix."""
        blocked = self._runs().blocked().awake()
        groups = blocked.order_by().values_list("blocked_code").annotate(Count("id"), Min("blocked_since"))
        found = []
        for code, count, since in groups:
            rows = blocked.filter(blocked_code=code).order_by("blocked_since", "id")[:NAMED]
            named = list(rows.values_list("run_id", "blocked_text"))
            if named:  # they may all have moved on meanwhile
                found.append(Blocked(code, count, since, named[0][1], tuple(run_id for run_id, _ in named)))
        return tuple(sorted(found, key=lambda item: (-item.count, item.code)))


def _paused(runs: RunQuerySet) -> Paused:
    count, since, first = _oldest(runs, "paused_at", "run_id", "paused_by")
    return Paused(count, since, tuple(run_id for run_id, _by in first), by=tuple(by for _run_id, by in first))


def _untaken(runs: RunQuerySet) -> list[Untaken]:
    groups = runs.order_by("build").values_list("build").annotate(Count("id"))
    return [Untaken(None, None, build, count, _first(runs.filter(build=build), "run_id")) for build, count in groups]


def _untaken_steps(steps: Any) -> list[Untaken]:
    names = ("step_name", "queue", "run__build")
    found = []
    for step, queue, build, count in steps.order_by(*names).values_list(*names).annotate(Count("id")):
        rows = steps.filter(step_name=step, queue=queue, run__build=build)
        found.append(Untaken(step, queue, build, count, _first(rows, "run__run_id")))
    return found


def _first(rows: Any, run_id: str) -> tuple[str, ...]:
    """Runs, each once, the oldest first."""
    return tuple(dict.fromkeys(rows.order_by("id").values_list(run_id, flat=True)[: 10 * NAMED]))[:NAMED]


def _named(rows: Any, since: str, *, run_id: str = "run_id") -> Named:
    count, oldest, first = _oldest(rows, since, run_id)
    return Named(count, oldest, tuple(name for (name,) in first))


def _oldest(rows: Any, since: str, *columns: str) -> tuple[int, datetime | None, list[tuple[Any, ...]]]:
    """How many there are, since when the oldest is so, and these columns of the first of them."""
    found = rows.aggregate(count=Count("id"), since=Min(since))
    first = rows.order_by(since, "id").values_list(*columns)[:NAMED] if found["count"] else ()
    return found["count"], found["since"], list(first)
