"""``@workflow``: a function that decides, and does nothing else."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass

from flow_app.authoring import registry
from flow_app.core.commands import Command
from flow_app.core.context import WorkflowContext
from flow_app.core.spec import WorkflowSpec
from flow_app.errors import ConfigurationError, FlowError

Decide = Callable[[WorkflowContext], Command]


@dataclass(eq=False)
class WorkflowDefinition:
    """A registered workflow; ``spec`` is what a new run of it records."""

    spec: WorkflowSpec
    function: Decide

    def __post_init__(self) -> None:
        functools.update_wrapper(self, self.function)

    @property
    def name(self) -> str:
        return self.spec.name

    def __call__(self, ctx: WorkflowContext) -> Command:
        return self.function(ctx)


def workflow(name: str, *, version: str = "1") -> Callable[[Decide], WorkflowDefinition]:
    """Register a workflow under a permanent name.

    The function takes a WorkflowContext and returns one command. It is called again after everything that happens, so
    it decides by what the context shows, never by the time, by chance or by what it remembers.

    Raises ConfigurationError for a bad or taken name, and for a function that cannot be called like this.
    """
    if callable(name):
        raise ConfigurationError("Write @workflow('name') with a name: it is stored in every run's history.")

    def register(function: Decide) -> WorkflowDefinition:
        spec = WorkflowSpec(name, version)
        try:
            spec.check()
        except FlowError as error:
            raise ConfigurationError(str(error)) from None
        _check_signature(name, function)
        definition = WorkflowDefinition(spec, function)
        registry.workflows.add(name, definition, origin=registry.origin_of(function))
        return definition

    return register


def _check_signature(name: str, function: Decide) -> None:
    if inspect.iscoroutinefunction(function) or inspect.isgeneratorfunction(function):
        raise ConfigurationError(f"Workflow {name!r} must be a plain function of one context that returns one command.")
    try:
        inspect.signature(function).bind(object())
    except TypeError:
        raise ConfigurationError(f"Workflow {name!r} must take exactly one argument, the context.") from None
