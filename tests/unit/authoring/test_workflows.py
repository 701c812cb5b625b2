from __future__ import annotations

import functools

import pytest

from flow_app.authoring import registry
from flow_app.authoring.workflows import WorkflowDefinition, workflow
from flow_app.core.commands import Complete
from flow_app.core.context import WorkflowContext
from flow_app.core.payload import NULL
from flow_app.core.spec import WorkflowSpec
from flow_app.errors import ConfigurationError, WorkflowNotRegisteredError
from tests.unit.builders import BEGUN, history, state_of


@pytest.fixture(autouse=True)
def _isolated():
    with registry.workflows.isolated():
        yield


def _flow(ctx):
    """Do nothing."""
    return ctx.complete()


def test_a_workflow_is_registered_under_its_name_and_stays_a_function():
    defined = workflow("unit-invoice", version="2026-05")(_flow)
    assert isinstance(defined, WorkflowDefinition)
    assert registry.workflows.get("unit-invoice") is defined
    assert (defined.name, defined.spec) == ("unit-invoice", WorkflowSpec("unit-invoice", "2026-05"))
    assert (defined.__name__, defined.__doc__) == ("_flow", "Do nothing.")
    ctx = WorkflowContext(state_of(*BEGUN), history=lambda: history(*BEGUN))
    assert defined(ctx) == Complete(NULL)


def test_the_version_is_1_unless_stated():
    assert workflow("unit-invoice")(_flow).spec.version == "1"


async def _async(ctx):
    return None


def _generator(ctx):
    yield None


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (lambda: None, "exactly one argument"),
        (lambda ctx, other: None, "exactly one argument"),
        (lambda ctx, *, other: None, "exactly one argument"),
        (_async, "plain function"),
        (_generator, "plain function"),
    ],
    ids=["none", "two", "keyword", "async", "generator"],
)
def test_a_function_that_cannot_be_called_like_this_is_refused(function, reason):
    with pytest.raises(ConfigurationError, match=reason):
        workflow("unit-invoice")(function)
    assert "unit-invoice" not in registry.workflows


@pytest.mark.parametrize(
    "function",
    [lambda ctx, other=None: None, lambda *args: None, functools.partial(lambda a, ctx: None, 1)],
    ids=["default", "variadic", "partial"],
)
def test_a_function_that_can_be_called_with_one_argument_is_accepted(function):
    assert workflow("unit-invoice")(function).function is function


@pytest.mark.parametrize("name", ["", "  ", "x" * 201, "a\nb", "a\x00", None, 7], ids=repr)
def test_a_bad_name_is_refused(name):
    with pytest.raises(ConfigurationError, match=r"name (.* )?must be"):
        workflow(name)(_flow)


@pytest.mark.parametrize("version", ["", " ", None, 2, "x" * 201], ids=repr)
def test_a_bad_version_is_refused(version):
    with pytest.raises(ConfigurationError, match="version"):
        workflow("unit-invoice", version=version)(_flow)


def test_a_forgotten_name_is_refused_at_once():
    with pytest.raises(ConfigurationError, match=r"@workflow\('name'\)"):
        workflow(_flow)  # what a bare @workflow does


def test_two_workflows_of_one_name_are_refused():
    workflow("unit-invoice")(_flow)
    with pytest.raises(ConfigurationError, match="Two workflows are named 'unit-invoice'"):
        workflow("unit-invoice")(lambda ctx: None)
    assert registry.workflows.get("unit-invoice").function is _flow


def test_what_was_refused_is_not_registered():
    with pytest.raises(WorkflowNotRegisteredError):
        registry.workflows.get("unit-invoice")
