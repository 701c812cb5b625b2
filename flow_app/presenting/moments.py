"""Instants and lengths of time, as people say them: in the reader's language and time zone."""

from __future__ import annotations

from datetime import datetime, timedelta

from django.utils import timezone
from django.utils.formats import date_format
from django.utils.translation import gettext as _
from django.utils.translation import pgettext

_WEEK = timedelta(days=6)
_MINUTE, _HOUR, _DAY = 60, 3600, 86_400


def here(at: datetime) -> datetime:
    """The instant in the reader's zone; the calendar's last hours, which have none there, stay in UTC."""
    try:
        return timezone.localtime(at)
    except OverflowError:
        return at


def when(at: datetime, *, now: datetime) -> str:
    """ "10:02" for today, "Tuesday 10:02" within six days either way, else the whole date with it."""
    there, today = here(at), here(now)
    hour = date_format(there, pgettext("format of an hour", "H:i"))
    if there.date() == today.date():
        return hour
    if abs(there.date() - today.date()) <= _WEEK:
        return _("%(weekday)s %(hour)s") % {"weekday": date_format(there, "l"), "hour": hour}
    return f"{date_format(there, 'DATE_FORMAT')}, {hour}"


def lasting(length: timedelta) -> str:
    """A length in its one or two largest units: "12 ms", "3.4 s", "5 min 20 s", "2 d 4 h"."""
    seconds = max(0.0, length.total_seconds())
    if seconds < 0.01:
        return _("%(count)s ms") % {"count": f"{seconds * 1000:.1f}".removesuffix(".0")}
    if seconds < 1:
        return _("%(count)d ms") % {"count": round(seconds * 1000)}
    if seconds < _MINUTE:
        return _("%(count)s s") % {"count": f"{seconds:.1f}".removesuffix(".0")}
    whole = int(seconds)
    if whole < _HOUR:
        return _("%(minutes)d min %(seconds)d s") % {"minutes": whole // _MINUTE, "seconds": whole % _MINUTE}
    if whole < _DAY:
        return _("%(hours)d h %(minutes)d min") % {"hours": whole // _HOUR, "minutes": whole % _HOUR // _MINUTE}
    return _("%(days)d d %(hours)d h") % {"days": whole // _DAY, "hours": whole % _DAY // _HOUR}
