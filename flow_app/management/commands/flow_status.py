"""``manage.py flow_status``: how all runs stand, for people and for monitoring."""

from __future__ import annotations

import json
from argparse import ArgumentParser
from collections.abc import Iterator
from dataclasses import asdict
from datetime import datetime, timedelta
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.db import Error as DatabaseTrouble

from flow_app import get_engine
from flow_app.core.payload import one_line
from flow_app.dispatch.status import LATE, Status, status_of
from flow_app.errors import FlowError
from flow_app.store.overview import Named, Paused

_UNKNOWN = 3
_OPEN = ("pending", "running", "suspended", "cancelling")
_ENDED = ("completed", "failed", "cancelled")


class Command(BaseCommand):
    help = "Show how all runs stand. Exit status: 0 all well, 1 warnings, 2 critical, 3 the status is not known."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--format", choices=("text", "json"), default="text")
        parser.add_argument(
            "--late",
            type=int,
            default=round(LATE.total_seconds()),
            help="Seconds after which what is due is overdue, more than beat's interval; default: %(default)s.",
        )
        parser.add_argument("--database", help="Database alias; default: FLOW_APP['DATABASE'].")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            status = status_of(get_engine(options["database"]), late=timedelta(seconds=options["late"]))
        except (FlowError, DatabaseTrouble) as error:
            raise CommandError(f"The status is not known: {error}", returncode=_UNKNOWN) from error
        if options["format"] == "json":
            self.stdout.write(json.dumps(as_json(status), indent=2))
        else:
            for line in as_text(status):
                self.stdout.write(line)
        if status.exit_status:
            raise SystemExit(status.exit_status)


def as_json(status: Status) -> dict[str, Any]:
    """What ``--format json`` writes; times are ISO 8601 in UTC."""
    overview = status.overview
    return {
        "at": overview.at.isoformat(),
        "exit_status": status.exit_status,
        "runs": overview.counts,
        "builds": [
            {"build": build, "open": count, "has_route": build not in status.missing_routes}
            for build, count in sorted(overview.builds.items(), key=lambda item: str(item[0]))
        ],
        "due": _json(overview.due),
        "overdue": _json(overview.overdue),
        "steps": {"out": overview.steps_out, "overdue": _json(overview.steps_overdue)},
        "blocked": [asdict(item) | {"since": item.since.isoformat()} for item in overview.blocked],
        "paused": _json(overview.paused) | {"by": list(overview.paused.by)},
        "losing_workers": _json(overview.losing_workers),
        "not_taken": [asdict(untaken) for untaken in overview.untaken],
        "scheduler": {"on_time": not status.scheduler_is_late},
        "problems": [asdict(problem) for problem in status.problems],
    }


def _json(named: Named) -> dict[str, Any]:
    since = None if named.since is None else named.since.isoformat()
    return {"count": named.count, "since": since, "run_ids": list(named.run_ids)}


def as_text(status: Status) -> Iterator[str]:
    overview, counts = status.overview, status.overview.counts
    yield _row("Open", *(f"{counts[name]} {name}" for name in _OPEN), f"{overview.paused.count} paused")
    yield _row("Ended", *(f"{counts[name]} {name}" for name in _ENDED))
    waits, hooks, retries = counts["open_waits"], counts["active_hooks"], counts["pending_retries"]
    yield _row("Waiting", f"{waits} timers", f"{hooks} hooks", f"{retries} retries", f"{overview.steps_out} steps out")
    yield _row("Due", str(overview.due.count), *_since(overview.due.since, overview.at))
    yield _row("Scheduler", _scheduler(status))
    for build, count in sorted(overview.builds.items(), key=lambda item: str(item[0])):
        route = "no route" if build in status.missing_routes else "has a route"
        yield _row("Build", build or "(none)", f"{count} open", route)
    if overview.paused.count:
        yield _row("Paused", *_paused(overview.paused), *_since(overview.paused.since, overview.at))
    for blocked in overview.blocked:
        yield _row("Blocked", blocked.code, *blocked.run_ids, *_since(blocked.since, overview.at))
    for problem in status.problems:
        yield ""
        yield f"{problem.level.upper()}: {problem.text}."
        yield f"    {problem.hint}"


def _scheduler(status: Status) -> str:
    if status.scheduler_is_late:
        return "does not seem to run"
    return "on time" if status.overview.due.count else "nothing is due"


def _row(title: str, *cells: str) -> str:
    return f"{title:<11}" + "   ".join(cells)


def _paused(paused: Paused) -> list[str]:
    named = zip(paused.run_ids, paused.by, strict=True)
    return [f"{run_id} (by {one_line(who)})" if who else run_id for run_id, who in named]


def _since(at: datetime | None, now: datetime) -> list[str]:
    return [] if at is None else [f"oldest {_age(now - at)}"]


def _age(age: timedelta) -> str:
    seconds = max(round(age.total_seconds()), 0)
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds // size} {unit}"
    return f"{seconds} s"
