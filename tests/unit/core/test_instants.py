from __future__ import annotations

from datetime import UTC, date, datetime, timedelta, timezone
from zoneinfo import ZoneInfo

import pytest

from flow_app.core.instants import MAX_DELAY_MS, after, from_text, to_text, utc
from flow_app.errors import InvalidTransitionError

PLUS_2 = timezone(timedelta(hours=2))
START = datetime(2026, 1, 1, tzinfo=UTC)


def test_an_instant_is_brought_to_utc():
    instant = utc(datetime(2026, 7, 1, 14, 30, 0, 5, tzinfo=ZoneInfo("Europe/Berlin")), what="deadline")
    assert instant == datetime(2026, 7, 1, 12, 30, 0, 5, tzinfo=UTC)
    assert instant.tzinfo is UTC


def test_an_instant_is_a_plain_datetime_whatever_came_in():
    class Frozen(datetime):
        pass

    assert type(utc(Frozen(2026, 1, 1, tzinfo=UTC), what="deadline")) is datetime


@pytest.mark.parametrize(("fold", "hour"), [(0, 0), (1, 1)])
def test_an_ambiguous_hour_is_told_apart_by_its_fold(fold, hour):
    local = datetime(2026, 10, 25, 2, 30, fold=fold, tzinfo=ZoneInfo("Europe/Berlin"))
    assert utc(local, what="deadline") == datetime(2026, 10, 25, hour, 30, tzinfo=UTC)


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (datetime(2026, 1, 1), "naive datetime 2026-01-01T00:00:00"),
        (date(2026, 1, 1), "not date"),
        ("2026-01-01T00:00:00Z", "not str"),
        (None, "not NoneType"),
        (1767225600, "not int"),
        (datetime.min.replace(tzinfo=PLUS_2), "outside the years 1 to 9999"),
        (datetime.max.replace(tzinfo=timezone(-timedelta(hours=1))), "outside the years 1 to 9999"),
    ],
    ids=str,
)
def test_anything_but_an_aware_datetime_of_the_calendar_is_refused(value, reason):
    with pytest.raises(InvalidTransitionError, match=reason) as caught:
        utc(value, what="the deadline")
    assert str(caught.value).startswith("the deadline ")


def test_a_delay_is_added_in_milliseconds():
    assert after(START, 1500, what="delay") == START + timedelta(seconds=1.5)
    assert after(START, 0, what="delay") == START


@pytest.mark.parametrize("delay_ms", [8000 * 366 * 86_400_000, MAX_DELAY_MS, MAX_DELAY_MS + 1, 2**64 - 1])
def test_a_delay_past_the_year_9999_is_refused(delay_ms):
    with pytest.raises(InvalidTransitionError, match=rf"retry delay of {delay_ms} ms ends after the year 9999"):
        after(START, delay_ms, what="retry delay")


@pytest.mark.parametrize(
    ("instant", "text"),
    [
        (datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC), "2026-01-02T03:04:05Z"),
        (datetime(2026, 1, 2, 3, 4, 5, 120_000, tzinfo=UTC), "2026-01-02T03:04:05.120Z"),
        (datetime(2026, 1, 2, 3, 4, 5, 1, tzinfo=UTC), "2026-01-02T03:04:05.000001Z"),
        (datetime(2026, 1, 2, 3, 4, 5, tzinfo=PLUS_2), "2026-01-02T01:04:05Z"),
        (datetime.min.replace(tzinfo=UTC), "0001-01-01T00:00:00Z"),
        (datetime.max.replace(tzinfo=UTC), "9999-12-31T23:59:59.999999Z"),
    ],
)
def test_an_instant_is_written_in_utc_and_read_back(instant, text):
    assert to_text(instant) == text
    assert from_text(text) == instant
    assert from_text(text).tzinfo is UTC


@pytest.mark.parametrize(
    "text",
    [
        "2026-01-02T03:04:05.5Z",
        "2026-01-02t03:04:05.500z",
        "2026-01-02 03:04:05.500000Z",
        "2026-01-02T03:04:05.500000999Z",
        "2026-01-02T05:04:05.5+02:00",
        "2026-01-01T22:04:05.5-05:00",
    ],
)
def test_every_form_of_rfc_3339_is_read_and_nanoseconds_are_cut(text):
    assert from_text(text) == datetime(2026, 1, 2, 3, 4, 5, 500_000, tzinfo=UTC)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "2026-01-02",
        "2026-01-02T03:04:05",
        "2026-01-02T03:04Z",
        "2026-01-02T03:04:05.Z",
        "2026-01-02T03:04:05.1234567890Z",
        "2026-02-30T00:00:00Z",
        "2026-01-02T24:00:01Z",
        "2026-01-02T03:04:60Z",
        "0000-01-01T00:00:00Z",
        "2026-01-02T03:04:05+25:00",
        "2026-01-02T03:04:05Z\n",
        "0001-01-01T00:00:00+05:00",
        "9999-12-31T23:59:59-05:00",
    ],
)
def test_what_is_not_an_instant_is_a_value_error(text):
    with pytest.raises(ValueError, match=r".+"):
        from_text(text)
