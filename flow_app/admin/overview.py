"""All runs at a glance: how many there are of each kind, and how many started and ended. Each number from an index."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

from django.db.models import Count, QuerySet, Value
from django.utils.formats import date_format
from django.utils.functional import Promise
from django.utils.timezone import localtime
from django.utils.translation import gettext_lazy as _

from flow_app.admin.filters import in_need
from flow_app.admin.picture import px
from flow_app.core.snapshot import RunStatus
from flow_app.models import Run
from flow_app.presenting import status_badge

#: Nothing is counted further than this: "10,000+" says enough, and says it at once.
MOST = 10_000
HOURS = 24

WIDTH, HEIGHT, FOOT, LEFT = 960, 180, 20, 40
_NEEDS = (
    ("blocked", _("blocked"), "bad", "!"),
    ("overdue", _("overdue"), "warn", "⚑"),
    ("no_worker", _("no worker for its build"), "warn", "⚑"),
    ("paused", _("paused"), "warn", "‖"),
)


@dataclass(frozen=True, slots=True)
class Tile:
    """``count`` goes no further than MOST, and ``is_more`` says that it would."""

    word: str | Promise
    tone: str
    sign: str
    query: str
    count: int
    is_more: bool


@dataclass(frozen=True, slots=True)
class Column:
    """One hour of the chart, in pixels and in words."""

    x: str
    width: str
    started: int
    started_y: str
    started_height: str
    finished: int
    finished_x: str
    finished_y: str
    finished_height: str
    label: str
    is_labelled: bool


@dataclass(frozen=True, slots=True)
class Build:
    build: str
    count: int


@dataclass(frozen=True, slots=True)
class Overview:
    statuses: list[Tile]
    needs: list[Tile]
    chart: list[Column]
    peak: int
    missing_builds: list[Build]

    width = WIDTH
    height = HEIGHT
    base = HEIGHT - FOOT
    left = LEFT


def read_overview(runs: QuerySet[Run]) -> Overview:
    """Fourteen queries, each over an index and no further than it says here."""
    now = datetime.now(UTC)
    hours = _hours(now)
    started, finished = _per_hour(runs, "created_at", hours), _per_hour(runs, "finished_at", hours)
    peak = max([*started, *finished, 1])
    return Overview(
        statuses=[_status(runs, status) for status in RunStatus],
        needs=[_need(runs, *need) for need in _NEEDS],
        chart=list(_chart(hours, started, finished, peak=peak)),
        peak=peak,
        missing_builds=_missing_builds(runs),
    )


def _status(runs: QuerySet[Run], status: RunStatus) -> Tile:
    badge = status_badge(status)
    return Tile(badge.word, badge.tone, badge.sign, f"status={status.value}", *_count(runs.filter(status=status.value)))


def _need(runs: QuerySet[Run], need: str, word: str | Promise, tone: str, sign: str) -> Tile:
    return Tile(word, tone, sign, f"attention={need}", *_count(in_need(runs, need)))


def _count(runs: QuerySet[Run]) -> tuple[int, bool]:
    found = runs.order_by().values("pk")[: MOST + 1].count()
    return min(found, MOST), found > MOST


def _missing_builds(runs: QuerySet[Run]) -> list[Build]:
    rows = in_need(runs, "no_worker").order_by().values_list("build").annotate(count=Count("pk")).order_by("-count")
    return [Build(build or "", count) for build, count in rows[:20]]


def _hours(now: datetime) -> list[datetime]:
    """The beginnings of the last hours, the present one among them, and the end of the last."""
    last = now.replace(minute=0, second=0, microsecond=0)
    return [last - timedelta(hours=back) for back in range(HOURS - 1, -2, -1)]


def _per_hour(runs: QuerySet[Run], column: str, hours: list[datetime]) -> list[int]:
    """How many runs have this instant in each hour: one query, which reads the index of that column alone."""
    parts: list[Any] = []
    for index, (start, end) in enumerate(pairwise(hours)):
        hour = runs.filter(**{f"{column}__gte": start, f"{column}__lt": end}).order_by()
        parts.append(hour.annotate(hour=Value(index)).values_list("hour").annotate(count=Count("pk")))
    counts = dict(parts[0].union(*parts[1:], all=True))
    return [counts.get(index, 0) for index in range(HOURS)]


def _chart(hours: list[datetime], started: list[int], finished: list[int], *, peak: int) -> Iterator[Column]:
    step = (WIDTH - LEFT) / HOURS
    width, room = step * 0.4, HEIGHT - FOOT - 10
    for index, (start, end) in enumerate(zip(started, finished, strict=True)):
        x, up, down = LEFT + index * step, start / peak * room, end / peak * room
        yield Column(
            x=px(x),
            width=px(width),
            started=start,
            started_y=px(HEIGHT - FOOT - up),
            started_height=px(up),
            finished=end,
            finished_x=px(x + width),
            finished_y=px(HEIGHT - FOOT - down),
            finished_height=px(down),
            label=date_format(localtime(hours[index]), "TIME_FORMAT"),
            is_labelled=index % 3 == 0,
        )
