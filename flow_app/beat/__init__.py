"""Entries for Celery beat, to put into ``CELERY_BEAT_SCHEDULE``. Nothing is scheduled that is not put there."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from celery.schedules import crontab

from flow_app.beat.grid import OnTheGrid
from flow_app.beat.nominal import crontab_of, text_of
from flow_app.core.identifiers import check_run_id
from flow_app.errors import ConfigurationError

__all__ = ["OnTheGrid", "schedule", "start"]

Entries = dict[str, dict[str, Any]]

#: Seconds. What no worker took is dropped after it, so that one who comes back finds little of it.
_STALE = 60


def schedule(*, every: float = 5) -> Entries:
    """The scheduler's tick, every so many seconds: how late a timer may fire, and how long a lost message stays lost.

    Raises ConfigurationError for an interval that is none.
    """
    if isinstance(every, bool) or not isinstance(every, int | float) or not every > 0:
        raise ConfigurationError(f"The tick comes every so many seconds, not every {every!r}.")
    options = {"expires": max(_STALE, 2 * every)}
    return {"flow_app.tick": {"task": "flow_app.tick", "schedule": every, "options": options}}


def start(
    name: str,
    workflow: str,
    when: timedelta | float | crontab | str,
    *,
    input: Any = None,
) -> Entries:
    """An entry that starts a run of ``workflow`` at each tick of ``when``: an interval, or a crontab.

    The run's id is ``name`` and the tick's time, so that any number of beats and repeated messages start one run. What
    was missed is not made up for: after a pause, only the latest tick starts one. A crontab is read in the time zone
    of the Celery app. ``input`` must be JSON, and stands in messages: no secrets.

    Raises ConfigurationError for another kind of schedule, InvalidRunIdError for a name that no run id can begin with.
    """
    check_run_id(f"{name}:20300101T000000Z")
    if isinstance(when, str):
        when = crontab_of(when)
    kwargs = {"name": name, "workflow": workflow, "input": input}
    if isinstance(when, crontab):
        return {name: _entry(when, {**kwargs, "when": text_of(when)})}
    seconds = _whole_seconds(when)
    return {
        name: _entry(OnTheGrid(timedelta(seconds=seconds)), {**kwargs, "when": seconds}, expires=max(_STALE, seconds))
    }


def _entry(plan: Any, kwargs: dict[str, Any], **options: int) -> dict[str, Any]:
    return {"task": "flow_app.start_run", "schedule": plan, "kwargs": kwargs, "options": options}


def _whole_seconds(every: object) -> int:
    seconds = every.total_seconds() if isinstance(every, timedelta) else every
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or seconds < 1 or seconds % 1:
        raise ConfigurationError(f"Runs start every so many whole seconds, or by a crontab, not by {every!r}.")
    return int(seconds)
