"""The operator's view of one engine: what its runs wait for, and what needs a hand."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Literal

from flow_app.core.payload import one_line
from flow_app.core.ports import FlowTaskDispatcher
from flow_app.engine import FlowEngine
from flow_app.errors import ConfigurationError
from flow_app.store.overview import Named, Overview, OverviewStore, Untaken

#: What is due for longer than this has been overlooked: a beat of five seconds is late by then, however slow it is.
LATE = timedelta(seconds=60)


@dataclass(frozen=True, slots=True)
class Problem:
    """Something that needs a hand: ``critical`` when runs stand still for it, else ``warning``."""

    level: Literal["critical", "warning"]
    code: str
    text: str
    hint: str


@dataclass(frozen=True, slots=True)
class Status:
    overview: Overview
    missing_routes: tuple[str | None, ...]
    problems: tuple[Problem, ...]

    @property
    def exit_status(self) -> int:
        """For monitoring: 0 all well, 1 warnings, 2 something is critical."""
        levels = {problem.level for problem in self.problems}
        return 2 if "critical" in levels else 1 if levels else 0

    @property
    def scheduler_is_late(self) -> bool:
        return any(problem.code == "scheduler_late" for problem in self.problems)


def status_of(engine: FlowEngine, *, late: timedelta = LATE) -> Status:
    """How the runs of an engine on a Django database stand. Raises ConfigurationError for one in memory."""
    using = getattr(engine.store, "using", None)
    if using is None:
        raise ConfigurationError("The status is read from a database. This engine's store is in memory.")
    store = OverviewStore(using, clock=engine.store.clock)
    overview = store.overview(now=engine.store.clock.now(), late=late)
    missing = _missing_routes(engine.services.dispatcher, overview)
    skips = engine.services.options.build.get("on_missing_route") == "skip"
    return Status(overview, missing, tuple(_problems(overview, missing, skips=skips)))


def _missing_routes(dispatcher: FlowTaskDispatcher | None, overview: Overview) -> tuple[str | None, ...]:
    """Builds of open runs that no dispatcher here leads to."""
    builds = [build for build in overview.builds if dispatcher is None or not dispatcher.has_route(build)]
    return tuple(sorted(builds, key=str))


def _problems(overview: Overview, missing: tuple[str | None, ...], *, skips: bool) -> Iterator[Problem]:
    yield from _lateness(overview)
    for build in missing:
        yield _no_route(overview, build, skips=skips)
    for blocked in overview.blocked:
        text = f"{_runs(blocked.count)} blocked by {blocked.code}: {_short(blocked.text)}"
        hint = f"Deploy a fix, then: manage.py flow_run_now {' '.join(blocked.run_ids)}"
        yield Problem("warning", f"blocked_{blocked.code}", text, hint)
    losing = overview.losing_workers
    if losing.count:
        text = f"{_runs(losing.count)} lost several workers in a row: {_names(losing)}"
        hint = "Look for memory and time limits in the workers' logs; keep the run from more: manage.py flow_pause"
        yield Problem("warning", "losing_workers", text, f"{hint} {losing.run_ids[0]}")
    for untaken in overview.untaken:
        yield _untaken(untaken)


def _lateness(overview: Overview) -> Iterator[Problem]:
    runs, steps = overview.overdue, overview.steps_overdue
    since = min((at for at in (runs.since, steps.since) if at is not None), default=None)
    if since is None:
        return
    seconds = round((overview.at - since).total_seconds())
    text = f"No scheduler seems to run: {_runs(runs.count)} and {steps.count} steps are overdue, one by {seconds} s"
    hint = (
        "Start manage.py flow_scheduler, or Celery beat with CELERY_BEAT_SCHEDULE = flow_app.beat.schedule() and a "
        "worker that reads the queue of flow_app.tick"
    )
    yield Problem("critical", "scheduler_late", text, hint)


def _no_route(overview: Overview, build: str | None, *, skips: bool) -> Problem:
    count = overview.builds[build]
    what = "pinned to no build" if build is None else f"of build {build!r}"
    others = "" if skips else ", and no other run is dispatched while one of them is due"
    return Problem("critical", "route_missing", f"No workers for {_runs(count)} {what}{others}", _route_hint(build))


def _route_hint(build: str | None) -> str:
    if build is None:
        return "FLOW_APP = {'BUILD': {'accept_unpinned': True, ...}} where the current code may run them"
    return (
        f"FLOW_APP = {{'BUILD': {{'routes': {{{build!r}: 'a queue'}}, ...}}}} while its workers read that queue, or "
        f"'compatible': [{build!r}] where the current code may run them"
    )


def _untaken(untaken: Untaken) -> Problem:
    """Nobody reads the queue, the workers are too few, or their code is not the one that is asked for."""
    what = _runs(untaken.count)
    where = f" of build {untaken.build!r}" if untaken.build is not None else ""
    if untaken.step is not None:
        where += f" to queue {untaken.queue!r}" if untaken.queue is not None else ""
        what = f"{untaken.count} of step {untaken.step!r}"
    named = ", ".join(untaken.run_ids)
    text = f"No worker takes {what}{where}, though messages were sent again and again: {named}"
    queue = "the queue" if untaken.queue is None else f"queue {untaken.queue!r}"
    hint = f"Start workers that read {queue}, and see in their logs what they refuse"
    return Problem("warning", "not_taken", text, hint)


def _runs(count: int) -> str:
    return "1 run" if count == 1 else f"{count} runs"


def _names(named: Named) -> str:
    return ", ".join(named.run_ids) + (", ..." if named.count > len(named.run_ids) else "")


def _short(text: str) -> str:
    return one_line((text.splitlines() or [""])[0], limit=200)
