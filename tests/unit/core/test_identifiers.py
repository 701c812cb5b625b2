from __future__ import annotations

import pytest
from django.db import models

from flow_app.core.identifiers import check_build_id, check_id, check_run_id
from flow_app.errors import InvalidRunIdError, InvalidRuntimeBuildIdError, InvalidTransitionError


class Name(models.TextChoices):
    CHARGE = "charge"


@pytest.mark.parametrize("run_id", ["a", "7", "invoice:2026-05.7_x", "A" * 128, "0-_.:"])
def test_a_run_id_is_letters_digits_and_four_signs(run_id):
    assert check_run_id(run_id) == run_id


@pytest.mark.parametrize(
    "run_id",
    ["", "../x", "-a", ".a", "_a", ":a", "a b", "a/b", "a\\b", "a\n", "ä", "٣", "a\x00", "a" * 129, None, 7, b"a"],
    ids=repr,
)
def test_scenario_005_any_other_run_id_is_refused_and_carried_by_the_error(run_id):
    with pytest.raises(InvalidRunIdError) as caught:
        check_run_id(run_id)
    assert caught.value.run_id == run_id


@pytest.mark.parametrize("build_id", ["a", "7", "v1.2.3+abc", "registry/app@sha256:12ab", "a-_.:+/@z", "b" * 128])
def test_scenario_110_build_ids_take_signs_inside(build_id):
    assert check_build_id(build_id) == build_id


@pytest.mark.parametrize(
    "build_id",
    ["", "-a", "a-", ".a", "a.", "/a", "a/", "a:", "@a", "a b", " a", "a\\b", "a\n", "a\nb", "ä", "b" * 129, None, 7],
    ids=repr,
)
def test_scenario_110_other_build_ids_are_refused(build_id):
    with pytest.raises(InvalidRuntimeBuildIdError) as caught:
        check_build_id(build_id)
    assert caught.value.value == build_id


@pytest.mark.parametrize("value", ["a", "charge card", "Straße/数 😀", "x" * 200, " padded "])
def test_other_ids_are_free_text(value):
    assert check_id(value, what="step id") == value


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("", "is blank"),
        (" \u00a0\u3000", "is blank"),
        ("x" * 201, "has 201 characters, more than 200"),
        ("a\x00b", "control character"),
        ("a\nb", "control character"),
        ("a\x7f", "control character"),
        ("a\x9f", "control character"),
        ("a\ud800", "lone surrogate"),
        (None, "must be a string, not NoneType"),
        (7, "must be a string, not int"),
        (b"a", "must be a string, not bytes"),
    ],
    ids=repr,
)
def test_an_id_that_databases_or_log_lines_would_not_take_is_refused(value, reason):
    with pytest.raises(InvalidTransitionError, match=reason) as caught:
        check_id(value, what="hook id")
    assert str(caught.value).startswith("hook id ")


@pytest.mark.parametrize("check", [check_run_id, check_build_id, lambda value: check_id(value, what="id")])
def test_a_checked_id_is_a_plain_string(check):
    assert type(check(Name.CHARGE)) is str
    assert check(Name.CHARGE) == "charge"
