"""Workflows, steps, builds and labels that cannot be, refused with a typed error before anything is written."""

from __future__ import annotations

from typing import Any

import pytest

from flow_app import (
    RuntimeBuildCompatibility,
    WorkflowSpec,
    step,
    workflow,
)
from flow_app.engine import FlowEngine
from flow_app.errors import (
    ConfigurationError,
    InvalidRuntimeBuildIdError,
    InvalidTransitionError,
    InvalidWorkflowError,
    RunConflictError,
    StepNotRegisteredError,
    WorkflowNotRegisteredError,
)
from tests.engine.refusals import blocked, refused

# --- workflows, steps, builds, tags ---------------------------------------------------------------------------------


def test_an_unknown_workflow(engine: FlowEngine) -> None:
    refused(engine, WorkflowNotRegisteredError, lambda: engine.start("nobody", run_id="r"))
    refused(engine, WorkflowNotRegisteredError, lambda: engine.start(WorkflowSpec("nobody", "1")))


@pytest.mark.parametrize(
    "bad",
    ["", " ", "a" * 201, "a\x00", None, 5, object(), print],
    ids=["empty", "blank", "long", "nul", "none", "number", "object", "function"],
)
def test_a_bad_workflow(engine: FlowEngine, bad: Any) -> None:
    refused(engine, InvalidWorkflowError, lambda: engine.start(bad))


def test_bad_versions_and_builds(engine: FlowEngine) -> None:
    workflow("plain")(lambda ctx: ctx.complete())
    for version in ("", " ", "a" * 201, "\x00", 5):
        refused(engine, InvalidWorkflowError, lambda version=version: engine.start("plain", version=version))  # type: ignore[misc]
    for build in ("", " ", "a b", "a" * 129, 5):
        refused(engine, InvalidRuntimeBuildIdError, lambda build=build: engine.start("plain", build=build))  # type: ignore[misc]
    with pytest.raises(InvalidRuntimeBuildIdError):
        RuntimeBuildCompatibility("a b")


def test_an_unknown_step(engine: FlowEngine) -> None:
    step("known")(lambda: None)
    blocked(
        engine, StepNotRegisteredError, lambda ctx: ctx.schedule_steps([ctx.step("a", "known"), ctx.step("b", "x")])
    )


@pytest.mark.parametrize("bad", [None, 5, "complete", {"type": "complete"}, [], Ellipsis], ids=str)
def test_what_is_not_a_command(engine: FlowEngine, bad: Any) -> None:
    blocked(engine, InvalidTransitionError, lambda ctx: bad)


@pytest.mark.parametrize("bad", [None, 5, b"x"], ids=repr)
def test_a_bad_error(engine: FlowEngine, bad: Any) -> None:
    blocked(engine, InvalidTransitionError, lambda ctx: ctx.fail(bad))


def test_two_of_one_name() -> None:
    def one(ctx: Any) -> Any: ...

    def two(ctx: Any) -> Any: ...

    workflow("name")(one)
    workflow("name")(one)
    step("name")(one)
    with pytest.raises(ConfigurationError, match="Two workflows are named 'name'"):
        workflow("name")(two)
    with pytest.raises(ConfigurationError, match="Two steps are named 'name'"):
        step("name")(two)


@pytest.mark.parametrize("subject", ["a" * 201, "\x00", "  ", 5], ids=ascii)
def test_a_bad_subject(engine: FlowEngine, subject: Any) -> None:
    workflow("plain")(lambda ctx: ctx.complete())
    refused(engine, InvalidTransitionError, lambda: engine.start("plain", subject=subject))


@pytest.mark.parametrize("labels", [{"": "a"}, {"a": 5}, {5: "a"}, {"a": "b" * 201}, {"a\x00": "b"}, ["a"]], ids=ascii)
def test_bad_labels(engine: FlowEngine, labels: Any) -> None:
    workflow("plain")(lambda ctx: ctx.complete())
    refused(engine, InvalidTransitionError, lambda: engine.start("plain", labels=labels))


def test_one_and_one_point_nought_are_two_inputs(engine: FlowEngine) -> None:
    workflow("plain")(lambda ctx: ctx.create_hook("h"))
    engine.start("plain", [1, True, None], run_id="r")
    assert engine.start("plain", (1, True, None), run_id="r") == "r"
    for other in ([1.0, True, None], [1, 1, None], [1, True], None):
        refused(engine, RunConflictError, lambda other=other: engine.start("plain", other, run_id="r"))  # type: ignore[misc]
