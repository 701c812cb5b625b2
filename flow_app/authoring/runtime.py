"""The runtime that runs registered Python functions. Another may be plugged in: four operations are all."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from flow_app.authoring import registry
from flow_app.core.commands import Command, ScheduleStep, ScheduleSteps
from flow_app.core.context import StepContext, WorkflowContext
from flow_app.core.remote import StepOptions
from flow_app.core.spec import WorkflowSpec


class RegistryRuntime:
    """Runs what ``@workflow`` and ``@step`` registered in this process."""

    def run_workflow(self, ctx: WorkflowContext) -> Command:
        command = registry.workflows.get(ctx.spec.name)(ctx)
        if isinstance(command, ScheduleStep):
            return _with_default_retry(command)
        if isinstance(command, ScheduleSteps):
            return replace(command, steps=tuple(_with_default_retry(step) for step in command.steps))
        return command

    def run_step(self, ctx: StepContext) -> Any:
        return registry.steps.get(ctx.step_name).run(ctx)

    def step_options(self, name: str) -> StepOptions:
        return registry.steps.get(name).options

    def step_names(self) -> list[str]:
        """Steps whose messages may be taken unseen: their deliveries need not be counted exactly.

        Another runtime may do without: then each is looked at first.
        """
        return [name for name in registry.steps.names() if self.step_options(name).deliveries is None]

    def workflow_spec(self, name: str) -> WorkflowSpec:
        return registry.workflows.get(name).spec


def _with_default_retry(command: ScheduleStep) -> ScheduleStep:
    """Resolve a step that was named by its text. Raises StepNotRegisteredError, so that nothing is written for it."""
    definition = registry.steps.get(command.step_name)
    if command.retry is not None or command.default_retry is definition.retry:
        return command
    return replace(command, default_retry=definition.retry)
