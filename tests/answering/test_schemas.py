"""Answers and the JSON Schema that their hook declares: right whatever the size, and few errors are kept."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from flow_app.answering import check_answer, schemas
from flow_app.answering.patience import IN_ONE_PLACE
from flow_app.errors import HookPayloadError

MANY = 20_000
TEXTS, FLAGS = {"items": {"type": "string"}}, {"items": {"type": "boolean"}}
LISTS = {"items": {"anyOf": [TEXTS, FLAGS]}}


def problems(schema: Any, answer: Any) -> list[tuple[str, str]]:
    try:
        check_answer("h", {"payload_schema": schema}, answer)
    except HookPayloadError as error:
        return list(error.problems)
    return []


def kept(errors: Any) -> int:
    """How many errors there are, with those inside of others."""
    return sum(1 + kept(error.context) for error in errors)


@pytest.mark.parametrize(
    "schema",
    [
        {"anyOf": [TEXTS, FLAGS]},
        {"oneOf": [TEXTS, FLAGS]},
        {"anyOf": [{"anyOf": [TEXTS, FLAGS]}, {"oneOf": [FLAGS, TEXTS]}]},
        {"$schema": "http://json-schema.org/draft-07/schema#", "anyOf": [TEXTS, FLAGS]},
        {"$schema": "http://json-schema.org/draft-03/schema#", "type": [TEXTS, FLAGS]},
        {"$defs": {"it": {"anyOf": [TEXTS, FLAGS]}}, "$ref": "#/$defs/it"},
        TEXTS,
    ],
)
def test_of_much_that_is_wrong_little_is_kept_and_less_is_told(schema):
    answer = list(range(MANY))
    assert 0 < kept(schemas._errors("h", schema, answer)) <= 10 * IN_ONE_PLACE
    assert 0 < len(problems(schema, answer)) <= IN_ONE_PLACE


def test_lists_of_lists_are_bounded_too():
    answer = [list(range(100)) for _ in range(1000)]
    assert 0 < kept(schemas._errors("h", LISTS, answer)) <= 200 * (1 + 2 * IN_ONE_PLACE)
    assert len(problems(LISTS, answer)) == IN_ONE_PLACE


@pytest.mark.parametrize(
    ("answer", "is_good"),
    [
        (["a"] * MANY, True),
        ([True] * MANY, True),
        (["a"] * MANY + [1], False),
        ([1] * 30 + ["a"] * 30, False),
        ([], True),
    ],
)
def test_which_answers_are_good_stays_as_it_was(answer, is_good):
    assert (problems({"anyOf": [TEXTS, FLAGS]}, answer) == []) is is_good


UNIQUE = {"uniqueItems": True}


@pytest.mark.parametrize(
    ("answer", "is_good"),
    [
        ([{"a": 1, "b": 2}, {"b": 2, "a": 1}], False),
        ([{"a": 1}, {"a": 1.0}], False),
        ([{"a": 1}, {"a": True}], True),
        ([1, True, "1", None, "null", [1], 0.5], True),
        ([0, -0.0], False),
        ([[1, [2]], [1, [2]]], False),
        ("aa", True),
        ([{"n": number} for number in range(MANY)], True),
        ([{"n": number % (MANY - 1)} for number in range(MANY)], False),
    ],
)
def test_items_are_unique_or_not_as_json_schema_has_it(answer, is_good):
    assert (problems(UNIQUE, answer) == []) is is_good
    if not is_good:
        assert problems(UNIQUE, answer) == [("", "has non-unique elements")]


VALUES = [0, 1, 1.0, True, False, "", "1", None, [], [0], [False], {}]


@pytest.mark.parametrize("pair", list(itertools.product(VALUES, repeat=2)))
def test_they_are_compared_as_the_library_does(pair):
    from jsonschema import Draft202012Validator

    assert (problems(UNIQUE, list(pair)) == []) is Draft202012Validator(UNIQUE).is_valid(list(pair))
