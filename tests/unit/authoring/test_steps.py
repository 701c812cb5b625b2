from __future__ import annotations

import functools
import logging
from datetime import timedelta

import pytest

from flow_app.authoring import registry
from flow_app.authoring.runtime import RegistryRuntime
from flow_app.authoring.steps import StepDefinition, step
from flow_app.core.context import StepContext, StepReference
from flow_app.core.payload import Payload
from flow_app.core.policy import DEFAULT_RETRY, RetryPolicy
from flow_app.core.remote import StepOptions
from flow_app.core.spec import WorkflowSpec
from flow_app.errors import ConfigurationError


@pytest.fixture(autouse=True)
def _isolated():
    with registry.steps.isolated():
        yield


def context(value: object = 7) -> StepContext:
    return StepContext(
        "run-1", "a", "unit-charge", 1, Payload.of(value), WorkflowSpec("unit-invoice"),
        logger=logging.LoggerAdapter(logging.getLogger("test"), {}), token_for=str, read_history=list,
    )  # fmt: skip


def test_a_step_is_registered_under_its_name_and_stays_a_function():
    @step("unit-charge")
    def charge(amount):
        """Take money."""
        return amount * 2

    assert isinstance(charge, StepDefinition)
    assert isinstance(charge, StepReference)
    assert registry.steps.get("unit-charge") is charge
    assert charge(4) == 8
    assert (charge.__name__, charge.__doc__, charge.step_name) == ("charge", "Take money.", "unit-charge")


def test_a_step_has_its_own_policy_or_three_attempts_at_once():
    assert step("a")(lambda: None).retry == DEFAULT_RETRY == RetryPolicy(3, 0)
    assert step("b", retry=RetryPolicy.none())(lambda: None).retry == RetryPolicy(1, 0)


def _nothing():
    return "nothing"


def _input(value):
    return value


def _context(ctx):
    return ctx.step_id


def _both(ctx, value):
    return ctx.step_id, value


def _optional(ctx=None, value=5):
    return ctx, value


def _defaults(value, currency="EUR"):
    return value, currency


def _variadic(*args, **kwargs):
    return args, kwargs


def _positional(ctx, value, /):
    return ctx.attempt, value


def _keyword_default(value, *, currency="EUR"):
    return value, currency


@pytest.mark.parametrize(
    ("body", "result"),
    [
        (_nothing, "nothing"),
        (_input, 7),
        (_context, "a"),
        (_both, ("a", 7)),
        (_optional, (None, 5)),
        (_defaults, (7, "EUR")),
        (_variadic, ((), {})),
        (_positional, (1, 7)),
        (_keyword_default, (7, "EUR")),
        (lambda value: value + 1, 8),
        (functools.partial(_both, value=9), ("a", 9)),
    ],
)
def test_a_body_gets_what_its_signature_asks_for(body, result):
    assert step("unit-charge")(body).run(context()) == result


def test_a_body_gets_a_copy_of_its_input():
    seen = step("unit-charge")(lambda value: value)
    ctx = context({"n": [1]})
    seen.run(ctx)["n"].append(2)
    assert seen.run(ctx) == {"n": [1]}


async def _async():
    return None


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (lambda value, other: None, "must take"),
        (lambda ctx, value, other: None, "must take"),
        (lambda value, ctx: None, "must take"),
        (lambda *, value: None, "must take"),
        (lambda value, *, currency: None, "must take"),
        (_async, "async"),
    ],
    ids=["two", "three", "context last", "keyword", "keyword besides", "async"],
)
def test_a_body_that_cannot_be_called_like_this_is_refused(body, reason):
    with pytest.raises(ConfigurationError, match=reason):
        step("unit-charge")(body)
    assert "unit-charge" not in registry.steps


@pytest.mark.parametrize("name", ["", "  ", "x" * 201, "a\nb", "a\x00", "a\ud800", None, 7], ids=repr)
def test_a_bad_name_is_refused(name):
    with pytest.raises(ConfigurationError, match="step name"):
        step(name)(_nothing)


def test_a_forgotten_name_is_refused_at_once():
    with pytest.raises(ConfigurationError, match=r"@step\('name'\)"):
        step(_nothing)  # what a bare @step does


@pytest.mark.parametrize("retry", [3, None, "none", RetryPolicy, RetryPolicy(2, 2**64 - 1)], ids=repr)
def test_a_policy_that_cannot_hold_is_refused_at_once(retry):
    with pytest.raises(ConfigurationError, match="retry"):
        step("unit-charge", retry=retry)(_nothing)


def test_two_functions_of_one_name_are_refused():
    step("unit-charge")(_nothing)
    with pytest.raises(ConfigurationError, match="Two steps are named 'unit-charge'"):
        step("unit-charge")(_input)
    assert registry.steps.get("unit-charge").function is _nothing


@pytest.mark.parametrize(
    ("declared", "options"),
    [
        ({}, StepOptions()),
        ({"timeout": timedelta(seconds=3)}, StepOptions(timeout=timedelta(seconds=3))),
        ({"dispatch": "task"}, StepOptions(travels=True)),
        ({"queue": "gpu"}, StepOptions(queue="gpu", travels=True)),
        ({"deliveries": 1}, StepOptions(deliveries=1)),
    ],
    ids=["none", "timeout", "dispatch", "queue", "deliveries"],
)
def test_what_is_declared_about_attempts(declared, options):
    @step("unit-options", **declared)
    def body():
        pass

    assert body.options == options
    assert RegistryRuntime().step_options("unit-options") == options


@pytest.mark.parametrize(
    ("declared", "says"),
    [
        ({"timeout": 3}, "timeout must be a timedelta of 1 ms to 366 days, not 3"),
        ({"timeout": timedelta()}, "timeout must be"),
        ({"timeout": timedelta(days=367)}, "timeout must be"),
        ({"queue": 7}, "queue must be the name of a queue, not 7"),
        ({"queue": " "}, "queue"),
        ({"queue": "x" * 201}, "queue"),
        ({"dispatch": "thread"}, "dispatch must be \"task\" or None, not 'thread'"),
        ({"deliveries": 0}, "deliveries must be a whole number of at least 1, not 0"),
        ({"deliveries": True}, "deliveries must be"),
    ],
    ids=["seconds", "zero", "a-year-and-more", "number", "blank", "long", "dispatch", "never", "true"],
)
def test_bad_options_are_refused_where_they_are_declared(declared, says):
    with pytest.raises(ConfigurationError, match=says):
        step("unit-options", **declared)
    assert "unit-options" not in registry.steps
