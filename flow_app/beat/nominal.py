"""Which tick of a schedule a message means, whenever it arrives and whichever beat sent it."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from typing import Any, NamedTuple

from celery.schedules import ParseException, crontab

from flow_app.beat.grid import latest_on_grid
from flow_app.errors import ConfigurationError

#: The clocks of beat and database differ: a message that comes this much too early means the tick to come.
_EARLY = timedelta(seconds=30)

#: Days. The rarest schedule there is: a 29th of February on a given weekday, over a year 2100.
_LONGEST_SEARCH = 366 * 41


class Fields(NamedTuple):
    """The values at which a crontab ticks."""

    minutes: set[int]
    hours: set[int]
    days: set[int]
    months: set[int]
    weekdays: set[int]  # from 0, a Sunday

    @classmethod
    def of(cls, plan: Any) -> Fields:  # any: the stubs of crontab do not know its fields
        return cls(plan.minute, plan.hour, plan.day_of_month, plan.month_of_year, plan.day_of_week)

    def include(self, day: date) -> bool:
        """Is it a day of the crontab? As Celery has it, all three must match."""
        return day.month in self.months and day.day in self.days and day.isoweekday() % 7 in self.weekdays


def nominal_tick(when: int | str, *, at: datetime, zone: tzinfo) -> datetime:
    """The latest tick at or before ``at``, in UTC. ``when`` is a number of seconds, or the text of a crontab.

    Raises ConfigurationError for a ``when`` that is no schedule.
    """
    if isinstance(when, str):
        return _latest(Fields.of(crontab_of(when)), at + _EARLY, zone)
    if isinstance(when, bool) or not isinstance(when, int) or when < 1:
        raise ConfigurationError(f"A schedule is whole seconds of at least 1, or the text of a crontab, not {when!r}.")
    every = timedelta(seconds=when)
    return latest_on_grid(at + min(_EARLY, every / 2), every)


def crontab_of(text: str) -> crontab:
    """The crontab of five fields: minute, hour, day of month, month, day of week. Raises ConfigurationError."""
    try:
        return crontab.from_string(" ".join(text.split()))
    except (ParseException, TypeError, ValueError) as error:
        raise ConfigurationError(f"{text!r} is no crontab of five fields: {error}") from None


def text_of(plan: crontab) -> str:
    """The five fields of a crontab, each a star or a list of numbers."""
    whole = (60, 24, 31, 12, 7)
    return " ".join(
        "*" if len(values) == size else ",".join(map(str, sorted(values)))
        for values, size in zip(Fields.of(plan), whole, strict=True)
    )


def _latest(fields: Fields, at: datetime, zone: tzinfo) -> datetime:
    today = at.astimezone(zone).date()
    for days in range(_LONGEST_SEARCH):
        day = today - timedelta(days=days)
        past = [tick for tick in _ticks(fields, day, zone) if tick <= at] if fields.include(day) else []
        if past:
            return max(past)
    raise ConfigurationError(f"A crontab of {fields} never ticks.")


def _ticks(fields: Fields, day: date, zone: tzinfo) -> Iterator[datetime]:
    """The ticks of a day. In the hour that clocks repeat, only what comes every hour comes twice."""
    folds = (0, 1) if len(fields.hours) == 24 else (0,)
    for hour in fields.hours:
        for minute in fields.minutes:
            for fold in folds:
                yield datetime.combine(day, time(hour, minute, fold=fold), zone).astimezone(UTC)
