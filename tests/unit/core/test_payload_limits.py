from __future__ import annotations

import json

import pytest

from flow_app.core.payload import Limits, Payload, clean_text, dumps, one_line
from flow_app.errors import PayloadError


def stored(value: object) -> object:
    """What a database gives back: the text, read as JSON, decoded."""
    return Payload(json.loads(Payload.of(value).text)).value


def nested(depth: int, leaf: object = 0) -> object:
    for _ in range(depth):
        leaf = [leaf]
    return leaf


# --- limits ---------------------------------------------------------------------------------------------------------


def test_depth_is_limited_to_64_levels():
    assert stored(nested(64)) == nested(64)
    with pytest.raises(PayloadError, match="deeper than 64 levels"):
        Payload.of(nested(65))


def test_depth_counts_lists_and_objects_alike():
    limits = Limits(max_depth=2)
    assert Payload.of({"a": [1]}, limits=limits).value == {"a": [1]}
    with pytest.raises(PayloadError) as caught:
        Payload.of({"a": [1, {}]}, limits=limits)
    assert caught.value.path == "$.a[1]"


def test_the_deepest_value_never_exhausts_the_stack():
    with pytest.raises(PayloadError, match="nested deeper"):
        Payload.of(nested(100_000))
    with pytest.raises(PayloadError, match="nested deeper"):
        Payload.of({"a": nested(100_000, leaf={"b": 1})})


def test_size_is_limited_to_a_mebibyte_of_text():
    largest = "x" * (1024 * 1024 - 2)  # with its quotes a mebibyte
    assert Payload.of(largest).value == largest
    with pytest.raises(PayloadError, match="takes 1048577 bytes, more than the 1048576"):
        Payload.of(largest + "x", what="output")


def test_size_counts_what_is_written_not_what_is_meant():
    assert Payload.of("ü" * 10, limits=Limits(max_bytes=62)).value == "ü" * 10
    with pytest.raises(PayloadError, match="takes 62 bytes"):
        Payload.of("ü" * 10, limits=Limits(max_bytes=61))


def test_a_payload_given_again_is_the_same_and_still_measured():
    payload = Payload.of("x" * 100)
    assert Payload.of(payload) is payload
    with pytest.raises(PayloadError, match="takes 102 bytes"):
        Payload.of(payload, limits=Limits(max_bytes=101))


def test_a_long_payload_is_shown_shortened():
    assert repr(Payload.of([1])) == "Payload([1])"
    assert len(repr(Payload.of("x" * 1000))) == 89


def test_dumps_refuses_what_is_not_json():
    with pytest.raises(ValueError, match="JSON compliant"):
        dumps(float("nan"))


# --- free text ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "clean"),
    [
        ("fine", "fine"),
        ("ü😀\n", "ü😀\n"),
        ("a\x00b", "a\\x00b"),
        ("a\ud800b", "a\\ud800b"),
        ("\x00\udfff\x00", "\\x00\\udfff\\x00"),
    ],
)
def test_free_text_is_made_storable(text, clean):
    assert clean_text(text) == clean


def test_free_text_is_cut_to_its_limit():
    assert clean_text("abcdef", limit=6) == "abcdef"
    assert clean_text("abcdefg", limit=6) == "abcde…"
    assert clean_text("a\x00", limit=4) == "a\\x…"


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("Grüße, 東京 🙂", "Grüße, 東京 🙂"),
        ("a\r\nb\tc\x85\u2028d", "a\\r\\nb\\tc\\x85\\u2028d"),
        ("\x1b[31m\x00\ud800\u202e", "\\x1b[31m\\x00\\ud800\\u202e"),
    ],
)
def test_a_line_stays_one_line(text, line):
    assert one_line(text) == line
    assert one_line(text, limit=3) == line[:2] + "…"
