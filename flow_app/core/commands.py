"""The commands: what a workflow function may ask for, one per call."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, ClassVar

from flow_app.core import instants
from flow_app.core.payload import DEFAULT_LIMITS, NULL, Limits, Payload
from flow_app.core.policy import DEFAULT_RETRY, ChildOperationReference, RetryPolicy, WorkflowProgress
from flow_app.errors import InvalidTransitionError, PayloadError


@dataclass(frozen=True, slots=True)
class Command:
    """Base of all commands."""

    type: ClassVar[str]


@dataclass(frozen=True, slots=True)
class Complete(Command):
    type: ClassVar[str] = "complete"
    output: Payload


@dataclass(frozen=True, slots=True)
class Fail(Command):
    type: ClassVar[str] = "fail"
    error: str


@dataclass(frozen=True, slots=True)
class Cancel(Command):
    type: ClassVar[str] = "cancel"


@dataclass(frozen=True, slots=True)
class Timeout(Command):
    type: ClassVar[str] = "timeout"
    deadline: datetime
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class RecordProgress(Command):
    type: ClassVar[str] = "record_progress"
    progress: WorkflowProgress


@dataclass(frozen=True, slots=True)
class LinkChildOperation(Command):
    type: ClassVar[str] = "link_child_operation"
    child: ChildOperationReference


@dataclass(frozen=True, slots=True)
class ScheduleStep(Command):
    """Run one step. ``retry`` is what the workflow stated; unstated, ``default_retry`` holds for a new step."""

    type: ClassVar[str] = "schedule_step"
    step_id: str
    step_name: str
    input: Payload
    retry: RetryPolicy | None = None
    default_retry: RetryPolicy = DEFAULT_RETRY


@dataclass(frozen=True, slots=True)
class ScheduleSteps(Command):
    type: ClassVar[str] = "schedule_steps"
    steps: tuple[ScheduleStep, ...]


@dataclass(frozen=True, slots=True)
class WaitUntil(Command):
    type: ClassVar[str] = "wait_until"
    wait_id: str
    resume_at: datetime


@dataclass(frozen=True, slots=True)
class CreateHook(Command):
    type: ClassVar[str] = "create_hook"
    hook_id: str
    token: str = field(repr=False)
    metadata: Payload = NULL
    expires_at: datetime | None = None


# --- the reference engine's JSON ------------------------------------------------------------------------------------


def command_from_wire(wire: Mapping[str, Any], *, limits: Limits = DEFAULT_LIMITS) -> Command:
    """Read a command of another runtime. Raises PayloadError when it does not have the command's shape."""
    kind = wire.get("type")
    read = _READERS.get(kind) if isinstance(kind, str) else None
    if read is None:
        raise PayloadError(f"names the unknown command type {kind!r}", what="command", cannot_be="read")
    try:
        return read(wire, limits)
    except (KeyError, TypeError, ValueError, AttributeError, InvalidTransitionError) as error:
        raise PayloadError(f"is no {kind}: {error}", what="command", cannot_be="read") from None


def _step(wire: Mapping[str, Any], limits: Limits) -> ScheduleStep:
    retry = wire.get("retry")
    return ScheduleStep(
        wire["step_id"],
        wire["step_name"],
        Payload.of(wire.get("input"), what="step input", limits=limits),
        None if retry is None else RetryPolicy.from_tree(retry),
    )


def _instant(value: str | None) -> datetime | None:
    return None if value is None else instants.from_text(value)


_READERS: Mapping[str, Callable[[Mapping[str, Any], Limits], Command]] = {
    "complete": lambda wire, limits: Complete(Payload.of(wire.get("output"), what="output", limits=limits)),
    "fail": lambda wire, limits: Fail(wire["error"]),
    "cancel": lambda wire, limits: Cancel(),
    "timeout": lambda wire, limits: Timeout(instants.from_text(wire["deadline"]), wire.get("reason")),
    "record_progress": lambda wire, limits: RecordProgress(WorkflowProgress(**wire["progress"])),
    "link_child_operation": lambda wire, limits: LinkChildOperation(ChildOperationReference(**wire["child"])),
    "schedule_step": _step,
    "schedule_steps": lambda wire, limits: ScheduleSteps(tuple(_step(step, limits) for step in wire["steps"])),
    "wait_until": lambda wire, limits: WaitUntil(wire["wait_id"], instants.from_text(wire["resume_at"])),
    "create_hook": lambda wire, limits: CreateHook(
        wire["hook_id"],
        wire["token"],
        Payload.of(wire.get("metadata"), what="hook metadata", limits=limits),
        _instant(wire.get("expires_at")),
    ),
}
