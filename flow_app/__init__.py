"""Durable, event-sourced workflows for Django, kept in the project's own database."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from flow_app import errors
    from flow_app.authoring.steps import step
    from flow_app.authoring.workflows import workflow
    from flow_app.core.commands import Command
    from flow_app.core.context import StepContext, WorkflowContext
    from flow_app.core.policy import (
        ChildOperationReference,
        HookCallbackRoute,
        HookMetadata,
        RetryPolicy,
        WorkflowProgress,
    )
    from flow_app.core.spec import RuntimeBuildCompatibility, WorkflowSpec
    from flow_app.engine import FlowEngine

    __version__: str

__all__ = [
    "ChildOperationReference",
    "Command",
    "HookCallbackRoute",
    "HookMetadata",
    "RetryPolicy",
    "RuntimeBuildCompatibility",
    "StepContext",
    "WorkflowContext",
    "WorkflowProgress",
    "WorkflowSpec",
    "__version__",
    "errors",
    "get_engine",
    "step",
    "workflow",
]

# Loaded when first asked for, so that importing flow_app needs no configured Django.
_HOMES = {
    "ChildOperationReference": "flow_app.core.policy",
    "Command": "flow_app.core.commands",
    "HookCallbackRoute": "flow_app.core.policy",
    "HookMetadata": "flow_app.core.policy",
    "RetryPolicy": "flow_app.core.policy",
    "RuntimeBuildCompatibility": "flow_app.core.spec",
    "StepContext": "flow_app.core.context",
    "WorkflowContext": "flow_app.core.context",
    "WorkflowProgress": "flow_app.core.policy",
    "WorkflowSpec": "flow_app.core.spec",
    "step": "flow_app.authoring.steps",
    "workflow": "flow_app.authoring.workflows",
}


def get_engine(using: str | None = None) -> FlowEngine:
    """The project's engine, on the database that FLOW_APP['DATABASE'] names, or on ``using``.

    Raises ConfigurationError when FLOW_APP is not valid.
    """
    from flow_app.dispatch.engine import engine_of  # needs the app registry, which an import of flow_app must not

    return engine_of(using)


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    if name == "errors":
        return import_module("flow_app.errors")
    if name == "__version__":
        return _version()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("flow-app")
    except PackageNotFoundError:  # a checkout that is not installed
        return "0+unknown"
