from __future__ import annotations

import logging

import pytest

from flow_app.authoring import registry
from flow_app.authoring.runtime import RegistryRuntime
from flow_app.authoring.steps import step
from flow_app.authoring.workflows import workflow
from flow_app.core.commands import Complete, ScheduleStep, ScheduleSteps
from flow_app.core.context import StepContext, WorkflowContext
from flow_app.core.payload import Payload
from flow_app.core.policy import RetryPolicy
from flow_app.core.spec import WorkflowSpec
from flow_app.errors import StepNotRegisteredError, WorkflowNotRegisteredError
from tests.unit.builders import BEGUN, history, state_of

OWN = RetryPolicy(7, 70)
STATED = RetryPolicy.none()


@pytest.fixture(autouse=True)
def charge():
    with registry.workflows.isolated(), registry.steps.isolated():
        yield step("unit-charge", retry=OWN)(lambda value: value * 2)


def run(decide):
    """The command of a workflow called ``unit-invoice``, as :mod:`tests.unit.builders` starts one."""
    workflow("unit-invoice")(decide)
    return RegistryRuntime().run_workflow(WorkflowContext(state_of(*BEGUN), history=lambda: history(*BEGUN)))


def test_the_workflow_of_the_run_is_called():
    assert run(lambda ctx: ctx.complete(ctx.input)) == Complete(Payload.of({"invoice": 7}))


@pytest.mark.parametrize(("stated", "effective"), [(None, OWN), (STATED, STATED)], ids=["unstated", "stated"])
@pytest.mark.parametrize("by_name", [True, False], ids=["by name", "by function"])
def test_a_step_runs_under_the_stated_policy_else_its_own(charge, by_name, stated, effective):
    named = "unit-charge" if by_name else charge
    command = run(lambda ctx: ctx.schedule_step("a", named, retry=stated))
    assert isinstance(command, ScheduleStep)
    assert command.retry == stated
    assert (command.retry or command.default_retry) == effective


def test_each_member_of_a_batch_runs_under_its_own_policy(charge):
    step("mail", retry=STATED)(lambda: None)
    command = run(
        lambda ctx: ctx.schedule_steps([ctx.step("a", "unit-charge"), ctx.step("b", "mail"), ctx.step("c", charge)])
    )
    assert isinstance(command, ScheduleSteps)
    assert [member.default_retry for member in command.steps] == [OWN, STATED, OWN]
    assert [member.step_id for member in command.steps] == ["a", "b", "c"]


@pytest.mark.parametrize(
    "decide",
    [
        lambda ctx: ctx.schedule_step("a", "no such step"),
        lambda ctx: ctx.schedule_step("a", "no such step", retry=STATED),
        lambda ctx: ctx.schedule_steps([ctx.step("a", "unit-charge"), ctx.step("b", "no such step")]),
    ],
    ids=["step", "with policy", "batch"],
)
def test_an_unknown_step_is_refused_before_it_is_declared(decide):
    with pytest.raises(StepNotRegisteredError, match="no such step"):
        run(decide)


def test_an_unknown_workflow_is_refused():
    runtime = RegistryRuntime()
    with pytest.raises(WorkflowNotRegisteredError):
        runtime.workflow_spec("unit-invoice")
    with pytest.raises(WorkflowNotRegisteredError):
        runtime.run_workflow(WorkflowContext(state_of(*BEGUN), history=list))
    workflow("unit-invoice", version="7")(lambda ctx: None)
    assert runtime.workflow_spec("unit-invoice") == WorkflowSpec("unit-invoice", "7")


def test_what_is_no_command_is_passed_on_for_the_decider_to_refuse():
    assert run(lambda ctx: None) is None


def test_a_step_is_found_by_its_recorded_name():
    ctx = StepContext(
        "run-1", "a", "unit-charge", 1, Payload.of(21), WorkflowSpec("unit-invoice"),
        logger=logging.LoggerAdapter(logging.getLogger("test"), {}), token_for=str, read_history=list,
    )  # fmt: skip
    assert RegistryRuntime().run_step(ctx) == 42
    with registry.steps.isolated():
        registry.steps._entries.clear()
        with pytest.raises(StepNotRegisteredError):
            RegistryRuntime().run_step(ctx)
