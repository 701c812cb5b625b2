"""Which workflows and steps this process knows. Filled by the decorators when a ``workflows.py`` is imported."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Generic, TypeVar

from flow_app.errors import ConfigurationError, FlowError, StepNotRegisteredError, WorkflowNotRegisteredError

if TYPE_CHECKING:
    from flow_app.authoring.steps import StepDefinition
    from flow_app.authoring.workflows import WorkflowDefinition

T = TypeVar("T")


class Registry(Generic[T]):
    """Names of one kind, each standing for one definition."""

    def __init__(self, kind: str, missing: type[FlowError]) -> None:
        self._kind = kind
        self._missing = missing
        self._entries: dict[str, tuple[T, str]] = {}

    def add(self, name: str, definition: T, *, origin: str) -> None:
        """Register. Raises ConfigurationError when another function has the name (the same one again is a reload)."""
        entry = self._entries.get(name)
        if entry is not None and entry[1] != origin:
            raise ConfigurationError(
                f"Two {self._kind}s are named {name!r}: {entry[1]} and {origin}. Give one of them another name."
            )
        self._entries[name] = (definition, origin)

    def get(self, name: str) -> T:
        """The definition, or the kind's NotRegistered error."""
        entry = self._entries.get(name)
        if entry is None:
            raise self._missing(name)
        return entry[0]

    def __contains__(self, name: object) -> bool:
        return name in self._entries

    def names(self) -> list[str]:
        return sorted(self._entries)

    @contextmanager
    def isolated(self) -> Iterator[None]:
        """Forget, at the end of the block, what was registered inside it. For tests that define workflows."""
        saved = dict(self._entries)
        try:
            yield
        finally:
            self._entries = saved


workflows: Registry[WorkflowDefinition] = Registry("workflow", WorkflowNotRegisteredError)
steps: Registry[StepDefinition] = Registry("step", StepNotRegisteredError)


def origin_of(function: Callable[..., object]) -> str:
    """Where a function is defined, for messages and to tell a reload from a second definition.

    The line tells apart what was copied under its old name.
    """
    module = getattr(function, "__module__", "?")
    code = getattr(inspect.unwrap(function), "__code__", None)
    line = "" if code is None else f" (line {code.co_firstlineno})"
    return f"{module}.{getattr(function, '__qualname__', repr(function))}{line}"
