"""What an exception leaves for people: where it came from, in bounds, and whatever it does when it is printed."""

from __future__ import annotations

import pytest

from flow_app.core.payload import clean_text
from flow_app.engine.tracebacks import MOST, traceback_of
from flow_app.errors import InvalidTransitionError


def caught(act) -> BaseException:
    try:
        act()
    except Exception as error:
        return error
    raise AssertionError("nothing was raised")


def text_of(act) -> str:
    return traceback_of(caught(act))


def divides():
    hidden = "the value of a variable"
    return len(hidden) / 0


def caused():
    try:
        divides()
    except ZeroDivisionError as error:
        raise LookupError("no rate") from error


def on_the_way():
    try:
        divides()
    except ZeroDivisionError:
        raise LookupError("no rate")  # noqa: B904 - that is the case


def on_purpose():
    try:
        divides()
    except ZeroDivisionError:
        raise LookupError("no rate") from None


def grouped():
    raise ExceptionGroup("two of them", [caught(divides), caught(caused)])


def noted():
    error = ValueError("with a note")
    error.add_note("look into the drawer")
    raise error


def deep(left: int = 10_000):
    return deeper(left) + 1


def deeper(left: int):
    return deep(left - 1)


def long():
    raise ValueError("x" * 1_000_000)


def chained(length: int) -> Exception:
    error: Exception = ValueError("the first of all")
    for number in range(length):
        try:
            raise LookupError(f"number {number}: {'y' * 1000}") from error
        except LookupError as found:
            error = found
    return error


class Unprintable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("not even that")


class Hostile(Exception):
    @property
    def __cause__(self):  # type: ignore[override]
        raise RuntimeError("no causes")


def raises(error: Exception):
    def act():
        raise error

    return act


@pytest.mark.parametrize(
    ("act", "words", "not_there"),
    [
        (divides, ["in divides\n    return len(hidden) / 0\n", "ZeroDivisionError: division by zero"], ["value of a"]),
        (caused, ["ZeroDivisionError", "was the direct cause of", "in caused\n", "LookupError: no rate"], ["During"]),
        (on_the_way, ["ZeroDivisionError", "During handling of the above", "LookupError"], ["direct cause"]),
        (on_purpose, ["LookupError: no rate"], ["ZeroDivisionError: division"]),
        (grouped, ["two of them (2 sub-exceptions)", "ZeroDivisionError", "LookupError: no rate"], []),
        (noted, ["ValueError: with a note\nlook into the drawer"], []),
        (deep, ["RecursionError", "in deep\n", "in deeper\n", "the beginning is left out"], []),
        (long, ["Traceback (most recent call last)", "in long\n", "ValueError: xxx", "…"], []),
        (raises(Unprintable()), ["in act\n", "Unprintable"], ["not even that"]),
        (raises(ValueError("a\x00\ud800")), ["ValueError: a\\x00\\ud800"], ["\x00", "\ud800"]),
    ],
)
def test_it_says_where_an_exception_came_from(act, words, not_there) -> None:
    text = text_of(act)
    assert [word for word in words if word not in text] == []
    assert [word for word in not_there if word in text] == []
    assert len(text) <= MOST
    assert clean_text(text) == text


def test_of_a_long_one_the_end_is_kept() -> None:
    def act():
        raise ValueError("the end") from chained(60)

    text = text_of(act)
    first, _, rest = text.partition("\n")
    assert first == "[... the beginning is left out ...]"
    assert "the first of all" not in rest
    assert "number 59" in rest
    assert rest.endswith("ValueError: the end\n")
    assert MOST - 2000 < len(text) <= MOST


def test_a_part_that_is_cut_leaves_the_others_as_they_are() -> None:
    def act():
        try:
            long()
        except ValueError as error:
            raise LookupError("no rate") from error

    text = text_of(act)
    assert "in long\n" in text
    assert "LookupError: no rate" in text


def test_what_cannot_be_printed_at_all_has_none() -> None:
    assert text_of(raises(Hostile())) == ""


def test_one_that_other_code_has_let_through_says_where() -> None:
    def asks():
        raise InvalidTransitionError("not like this")

    assert "in asks\n" in text_of(asks)
