"""Instants: aware, UTC, whole microseconds. Deadlines are computed once, recorded, and compared as recorded."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

from flow_app.errors import InvalidTransitionError

_RFC3339 = re.compile(r"(\d{4}-\d\d-\d\d)[Tt ](\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?([Zz]|[+-]\d\d:\d\d)")

#: Longest delay a timer or retry may have: past it no instant of the calendar can be reached.
MAX_DELAY_MS = 9999 * 366 * 86_400_000

#: The end of the calendar.
LAST = datetime.max.replace(tzinfo=UTC)


def utc(value: object, *, what: str) -> datetime:
    """The instant in UTC. Raises InvalidTransitionError for anything but an aware datetime of the years 1 to 9999."""
    if not isinstance(value, datetime):
        raise InvalidTransitionError(f"{what} must be an aware datetime, not {type(value).__name__}")
    if value.utcoffset() is None:
        raise InvalidTransitionError(f"{what} is the naive datetime {value.isoformat()}; give it a time zone")
    try:
        instant = value.astimezone(UTC)
    except OverflowError:
        raise InvalidTransitionError(f"{what} {value.isoformat()} is outside the years 1 to 9999 in UTC") from None
    return datetime(*instant.timetuple()[:6], instant.microsecond, tzinfo=UTC)  # a plain datetime, whatever came in


def after(start: datetime, delay_ms: int, *, what: str) -> datetime:
    """``start`` plus ``delay_ms`` milliseconds. Raises InvalidTransitionError past the year 9999."""
    if delay_ms > MAX_DELAY_MS:
        raise InvalidTransitionError(f"{what} of {delay_ms} ms ends after the year 9999")
    try:
        return start + timedelta(milliseconds=delay_ms)
    except OverflowError:
        raise InvalidTransitionError(f"{what} of {delay_ms} ms ends after the year 9999") from None


def after_or_last(start: datetime, delay_ms: int) -> datetime:
    """``start`` plus ``delay_ms`` milliseconds, or the calendar's last instant where that would be past it."""
    try:
        return after(start, delay_ms, what="delay")
    except InvalidTransitionError:
        return LAST


def to_text(instant: datetime) -> str:
    """RFC 3339 in UTC with ``Z`` and the shortest of 0, 3 or 6 decimals, as the reference engine writes it."""
    text = instant.astimezone(UTC).replace(tzinfo=None).isoformat(timespec="microseconds")
    head, _, micros = text.partition(".")
    if micros == "000000":
        return head + "Z"
    return f"{head}.{micros[:3] if micros.endswith('000') else micros}Z"


def from_text(text: str) -> datetime:
    """Read RFC 3339; what is finer than a microsecond is cut off. Raises ValueError when it is not RFC 3339."""
    match = _RFC3339.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is not an RFC 3339 instant")
    day, clock, fraction, zone = match.groups()
    micros = (fraction or "")[:6].ljust(6, "0")
    zone = "+00:00" if zone in "Zz" else zone
    try:
        return datetime.fromisoformat(f"{day}T{clock}.{micros}{zone}").astimezone(UTC)
    except OverflowError:
        raise ValueError(f"{text!r} is outside the years 1 to 9999 in UTC") from None
