from __future__ import annotations

import enum
import json
import sys
from collections import OrderedDict, defaultdict, namedtuple
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from fractions import Fraction
from types import MappingProxyType
from uuid import UUID
from zoneinfo import ZoneInfo

import pytest
from django.contrib.auth.models import User
from django.db import models
from django.utils.safestring import mark_safe
from django.utils.translation import gettext_lazy

from flow_app.core.payload import NULL, Payload, decode
from flow_app.errors import PayloadError


def stored(value: object) -> object:
    """What a database gives back: the text, read as JSON, decoded."""
    return Payload(json.loads(Payload.of(value).text)).value


def shape(value: object) -> object:
    """The value with the type of every part spelled out: ``1 == 1.0 == True``, their shapes are not."""
    if isinstance(value, dict):
        return {key: shape(item) for key, item in value.items()}
    if isinstance(value, list):
        return [shape(item) for item in value]
    return type(value), value


class Colour(models.TextChoices):
    RED = "red", "Rot"


class Mixed(str, enum.Enum):  # noqa: UP042  -- its str() is not its value, which is the point
    A = "a"


class Level(enum.IntEnum):
    HIGH = 3


class Plain(enum.Enum):
    ONE = 1


@dataclass
class Point:
    x: int


Pair = namedtuple("Pair", "left right")
PLUS_2 = timezone(timedelta(hours=2))
ODD = timezone(-timedelta(hours=3, minutes=17, seconds=5, microseconds=7))

EXACT = {
    "null": None,
    "true": True,
    "false": False,
    "zero": 0,
    "beyond 64 bits": 2**80,
    "negative beyond 64 bits": -(2**80),
    "longest integer": 10**4300 - 1,
    "float": 1.5,
    "integral float": 1.0,
    "large float": 1e22,
    "smallest float": 5e-324,
    "largest float": sys.float_info.max,
    "text": "Straße 数 😀",
    "empty text": "",
    "NUL": "a\x00b",
    "lone high surrogate": "a\ud800b",
    "lone low surrogate": "\udfff",
    "line separators": "\u2028\u2029\x85\r\n",
    "empty list": [],
    "empty object": {},
    "nested": {"a": [1, {"b": [None, True, 1.0, 1]}], "": {"x": []}},
    "decimal": Decimal("1.10"),
    "decimal zero": Decimal("-0E+3"),
    "decimal exponent": Decimal("1E+1000000"),
    "decimal digits": Decimal("0." + "123456789" * 10),
    "datetime": datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC),
    "datetime with offset": datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=PLUS_2),
    "datetime with odd offset": datetime(2026, 1, 2, 3, 4, 5, tzinfo=ODD),
    "first datetime": datetime.min.replace(tzinfo=UTC),
    "last datetime": datetime.max.replace(tzinfo=UTC),
    "date": date(2026, 2, 28),
    "first date": date.min,
    "time": time(1, 2, 3, 4),
    "time with offset": time(1, 2, tzinfo=PLUS_2),
    "timedelta": timedelta(days=-3, seconds=7, microseconds=11),
    "longest timedelta": timedelta.max,
    "shortest timedelta": timedelta.min,
    "uuid": UUID("12345678-1234-5678-1234-567812345678"),
    "bytes": bytes(range(256)),
    "no bytes": b"",
    "rich in depth": {"list": [{"price": Decimal("9.90"), "at": date(2026, 1, 1)}, [UUID(int=1)]]},
}


@pytest.mark.parametrize("value", EXACT.values(), ids=EXACT)
def test_a_value_comes_back_exactly_as_it_was(value):
    back = stored(value)
    assert back == value
    assert shape(back) == shape(value)


def test_negative_zero_keeps_its_sign():
    assert str(stored(-0.0)) == "-0.0"
    assert str(stored([0.0])) == "[0.0]"


def test_a_zone_of_the_calendar_comes_back_as_the_same_instant_and_offset():
    berlin = datetime(2026, 10, 25, 2, 30, fold=1, tzinfo=ZoneInfo("Europe/Berlin"))
    back = stored(berlin)
    assert isinstance(back, datetime)
    assert back.astimezone(UTC) == berlin.astimezone(UTC)
    assert back.utcoffset() == berlin.utcoffset() == timedelta(hours=1)


@pytest.mark.parametrize(
    ("value", "base"),
    [
        (Colour.RED, "red"),
        (Mixed.A, "a"),
        (Level.HIGH, 3),
        (mark_safe("<b>"), "<b>"),
        ((1, (2,)), [1, [2]]),
        (Pair(1, "x"), [1, "x"]),
        (OrderedDict(b=1, a=2), {"a": 2, "b": 1}),
        (defaultdict(list, k=[1]), {"k": [1]}),
        ({Colour.RED: 1}, {"red": 1}),
        (type("Money", (Decimal,), {})("2.50"), Decimal("2.50")),
        (type("Moment", (datetime,), {})(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 1, tzinfo=UTC)),
        (type("Ratio", (float,), {})(0.5), 0.5),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_subclass_is_stored_as_its_base(value, base):
    back = stored(value)
    assert back == base
    assert type(back) is type(base)
    assert Payload.of(value) == Payload.of(base)


def test_the_first_pass_sees_plain_types_without_a_database():
    value = Payload.of({Colour.RED: (Level.HIGH, Mixed.A)}).value
    assert value == {"red": [3, "a"]}
    assert [type(item) for item in (*value, *value["red"])] == [str, int, str]


def test_the_first_pass_sees_keys_in_the_order_of_a_replay():
    payload = Payload.of({"b": {"z": 1, "y": 2}, "a": 3, "ü": 4, "Z": 5})
    replayed = Payload(json.loads(payload.text))
    assert list(payload.value) == list(replayed.value) == ["Z", "a", "b", "ü"]
    assert list(payload.value["b"]) == list(replayed.value["b"]) == ["y", "z"]


# --- equality -------------------------------------------------------------------------------------------------------


DIFFERENT = [
    None, False, True, 0, 1, 0.0, -0.0, 1.0, "", "1", "true", [], {}, [1], [1.0], [True], {"a": 1}, {"a": 1.0},
    {"a": True}, {"b": 1}, [1, 2], [2, 1], Decimal("1"), Decimal("1.0"), {"$decimal": "1"}, {"$$decimal": "1"},
    date(2026, 1, 1), "2026-01-01", datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 1, 2, tzinfo=PLUS_2),
    timedelta(microseconds=1), b"", b"1", UUID(int=1), str(UUID(int=1)), time(1),
]  # fmt: skip


def test_values_of_another_type_or_order_have_another_digest():
    digests = {Payload.of(value).digest for value in DIFFERENT}
    assert len(digests) == len(DIFFERENT)
    assert len({Payload.of(value) for value in DIFFERENT}) == len(DIFFERENT)


def test_the_order_of_keys_does_not_count():
    one, other = Payload.of({"a": 1, "b": {"x": 1, "y": 2}}), Payload.of({"b": {"y": 2, "x": 1}, "a": 1})
    assert one == other
    assert hash(one) == hash(other)
    assert one.digest == other.digest
    assert one.text == '{"a":1,"b":{"x":1,"y":2}}'


def test_a_payload_equals_no_value_that_is_not_a_payload():
    assert Payload.of(1) != 1
    assert Payload.of(None) == NULL


def test_the_text_is_ascii_and_has_no_spaces():
    text = Payload.of({"ü": ["😀", "\ud800", "\x00"]}).text
    assert text == '{"\\u00fc":["\\ud83d\\ude00","\\ud800","\\u0000"]}'


def test_two_surrogates_that_spell_a_character_are_that_character():
    assert Payload.of("\ud83d\ude00") == Payload.of("😀")
    assert stored({"\ud83d\ude00": "x\ud83d\ude00"}) == {"😀": "x😀"}


def test_two_keys_that_become_one_are_refused():
    with pytest.raises(PayloadError, match="twice"):
        Payload.of({"\ud83d\ude00": 1, "😀": 2})


def test_what_was_recorded_cannot_be_changed_through_a_read():
    payload = Payload.of({"items": [1]})
    payload.value["items"].append(2)
    assert payload.value == {"items": [1]}


def test_what_was_given_can_change_without_changing_the_payload():
    value = {"items": [1]}
    payload = Payload.of(value)
    value["items"].append(2)
    assert payload.value == {"items": [1]}


# --- user data that looks like ours ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "value",
    [
        {"$decimal": "1.10"},
        {"$decimal": Decimal("1.10")},
        {"$": 1},
        {"$$": 1},
        {"$$decimal": "1"},
        {"$$$x": {"$$x": {"$x": {"x": {"$": None}}}}},
        {"$unknown": [{"$uuid": "no"}, {"$bytes": 5}]},
        {"$datetime": {"$datetime": "x"}},
        {"$decimal": "1", "other": 2},
        [{"deep": [{"$timedelta": 5}]}],
        {"key": {"$date": "2026-01-01"}, "$date": "2026-01-01"},
    ],
    ids=repr,
)
def test_user_data_of_the_tagged_shape_is_plain_data(value):
    assert stored(value) == value
    assert shape(stored(value)) == shape(value)


def test_plain_json_has_neither_tags_nor_escapes():
    value = {
        "d": Decimal("1.10"),
        "at": datetime(2026, 1, 2, tzinfo=UTC),
        "u": UUID(int=1),
        "b": b"\x00\xff",
        "t": timedelta(hours=25),
        "user": [{"$decimal": "1"}, {"$$x": {"$y": 1}}],
        "n": [1, None, True, 1.5],
    }
    assert Payload.of(value).plain == {
        "d": "1.10",
        "at": "2026-01-02T00:00:00+00:00",
        "u": str(UUID(int=1)),
        "b": "AP8=",
        "t": "1 day, 1:00:00",
        "user": [{"$decimal": "1"}, {"$$x": {"$y": 1}}],
        "n": [1, None, True, 1.5],
    }


@pytest.mark.parametrize(
    "tree",
    [
        {"$unknown": 1},
        {"$": 1},
        {"$decimal": "one"},
        {"$decimal": None},
        {"$decimal": []},
        {"$datetime": "yesterday"},
        {"$datetime": 5},
        {"$date": "2026-02-30"},
        {"$time": "25:00"},
        {"$timedelta": "5"},
        {"$timedelta": 10**30},
        {"$uuid": "no"},
        {"$uuid": 5},
        {"$bytes": "***"},
        {"$bytes": 5},
        [{"a": {"$uuid": {}}}],
    ],
    ids=repr,
)
def test_a_stored_text_that_cannot_be_read_is_a_payload_error(tree):
    with pytest.raises(PayloadError, match=r"^stored payload cannot be read: "):
        decode(tree)


# --- refusals -------------------------------------------------------------------------------------------------------


REFUSED = {
    "NaN": (float("nan"), "$", "NaN"),
    "infinity": ([1.0, float("-inf")], "$[1]", "infinite"),
    "set": ({"a": {1}}, "$.a", "set"),
    "frozenset": (frozenset(), "$", "frozenset"),
    "integer key": ({"a": {1: 2}}, "$.a", "keys must be strings"),
    "None key": ({None: 2}, "$", "keys must be strings"),
    "tuple key": ([{(1, 2): 3}], "$[0]", "keys must be strings"),
    "huge integer key": ({10**5000: 1}, "$", "keys must be strings"),
    "model instance": ({"user": [User(username="ada")]}, "$.user[0]", "django.contrib.auth.models.User"),
    "model instance as key": ({User(pk=1, username="ada"): 1}, "$", "keys must be strings"),
    "model class": (User, "$", "neither JSON"),
    "object": ([[object()]], "$[0][0]", "object"),
    "function": ({"f": len}, "$.f", "builtin_function_or_method"),
    "dataclass": (Point(1), "$", "Point"),
    "enum": (Plain.ONE, "$", "Plain"),
    "complex": ({"items": [{"price": 1j}]}, "$.items[0].price", "complex"),
    "fraction": (Fraction(1, 2), "$", "fractions.Fraction"),
    "bytearray": (bytearray(b"x"), "$", "bytearray"),
    "generator": ((item for item in ()), "$", "generator"),
    "mapping proxy": (MappingProxyType({}), "$", "mappingproxy"),
    "lazy text": ({"label": gettext_lazy("yes")}, "$.label", "neither JSON"),
    "exception": (ValueError("x"), "$", "ValueError"),
    "Ellipsis": (..., "$", "ellipsis"),
    "naive datetime": ({"at": datetime(2026, 1, 1)}, "$.at", "time zone"),
    "time of a changing zone": (time(1, tzinfo=ZoneInfo("Europe/Berlin")), "$", "offset depends on the date"),
    "decimal NaN": (Decimal("NaN"), "$", "Decimal"),
    "decimal signalling NaN": ([Decimal("sNaN")], "$[0]", "Decimal"),
    "decimal infinity": (Decimal("-Infinity"), "$", "Decimal"),
    "endless integer": (10**4300, "$", "4300 digits"),
}


@pytest.mark.parametrize(("value", "path", "reason"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_stored_is_refused_with_its_path(value, path, reason):
    with pytest.raises(PayloadError) as caught:
        Payload.of(value, what="step output")
    assert caught.value.path == path
    assert caught.value.what == "step output"
    assert reason in str(caught.value)
    assert str(caught.value).startswith(f"step output cannot be stored: {path} ")


def test_a_value_that_contains_itself_is_refused():
    value: dict[str, object] = {"a": [1]}
    value["a"].append({"back": value})  # type: ignore[attr-defined]
    with pytest.raises(PayloadError, match="contains itself") as caught:
        Payload.of(value)
    assert caught.value.path == "$.a[1].back"


def test_a_value_may_appear_twice_side_by_side():
    shared = {"x": [1]}
    assert stored([shared, shared, {"again": shared}]) == [{"x": [1]}, {"x": [1]}, {"again": {"x": [1]}}]


def test_a_path_is_shown_shortened_and_printable():
    with pytest.raises(PayloadError) as caught:
        Payload.of({"a\x00\ud800" + "k" * 500: {1}})
    assert len(caught.value.path) == 200
    assert caught.value.path.startswith("$.a\\x00\\ud800kkk")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({1: 2}, "a key that is an int,"),
        ({b"": 2}, "a key that is a bytes,"),
        (object(), "is an object,"),
        (1j, "is a complex,"),
        (iter(()), "is a tuple_iterator,"),
    ],
    ids=["int", "bytes", "object", "complex", "iterator"],
)
def test_a_refusal_has_the_right_article(value, text):
    with pytest.raises(PayloadError, match=text):
        Payload.of(value)
