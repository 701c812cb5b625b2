"""Tasks: what a dispatcher carries to a worker, in the reference engine's JSON."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, ClassVar

from flow_app.core import instants
from flow_app.errors import InvalidTransitionError, PayloadError


@dataclass(frozen=True, slots=True)
class FlowTask:
    """Base of all tasks."""

    type: ClassVar[str]

    @property
    def explicit_run_id(self) -> str | None:
        """The one run the task is for; None for due scans and for what goes by token."""
        return getattr(self, "run_id", None)

    def to_wire(self) -> dict[str, Any]:
        wire: dict[str, Any] = {"type": self.type}
        for item in dataclasses.fields(self):
            value = getattr(self, item.name)
            if isinstance(value, datetime):
                value = instants.to_text(instants.utc(value, what=item.name))
            wire[item.name] = value
        return wire


@dataclass(frozen=True, slots=True)
class DriveRun(FlowTask):
    type: ClassVar[str] = "drive_run"
    run_id: str


@dataclass(frozen=True, slots=True)
class RunStep(FlowTask):
    """One attempt of a step that travels; everything else stands in the database."""

    type: ClassVar[str] = "run_step"
    run_id: str
    step_id: str
    attempt: int


@dataclass(frozen=True, slots=True)
class ResumeWait(FlowTask):
    type: ClassVar[str] = "resume_wait"
    run_id: str
    wait_id: str


@dataclass(frozen=True, slots=True)
class ResumeHook(FlowTask):
    type: ClassVar[str] = "resume_hook"
    run_id: str
    hook_id: str
    payload: Any = None


@dataclass(frozen=True, slots=True)
class ResumeHookByToken(FlowTask):
    type: ClassVar[str] = "resume_hook_by_token"
    token: str = field(repr=False)
    payload: Any = None


@dataclass(frozen=True, slots=True)
class DisposeHook(FlowTask):
    type: ClassVar[str] = "dispose_hook"
    run_id: str
    hook_id: str


@dataclass(frozen=True, slots=True)
class DisposeHookByToken(FlowTask):
    type: ClassVar[str] = "dispose_hook_by_token"
    token: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class ResumeScheduledRun(FlowTask):
    type: ClassVar[str] = "resume_scheduled_run"
    run_id: str
    now: datetime | None = None


@dataclass(frozen=True, slots=True)
class ResumeDueWaits(FlowTask):
    type: ClassVar[str] = "resume_due_waits"
    now: datetime


@dataclass(frozen=True, slots=True)
class ResumeDueRetries(FlowTask):
    type: ClassVar[str] = "resume_due_retries"
    now: datetime


_TASKS: Mapping[str, type[FlowTask]] = {
    task.type: task
    for task in (
        DriveRun, RunStep, ResumeWait, ResumeHook, ResumeHookByToken, DisposeHook, DisposeHookByToken,
        ResumeScheduledRun, ResumeDueWaits, ResumeDueRetries,
    )
}  # fmt: skip


def task_from_wire(wire: Mapping[str, Any]) -> FlowTask:
    """Read a task. Raises PayloadError when it does not have a task's shape."""
    name = wire.get("type")
    kind = _TASKS.get(name) if isinstance(name, str) else None
    if kind is None:
        raise PayloadError(f"names the unknown task type {name!r}", what="task", cannot_be="read")
    fields = {name: value for name, value in wire.items() if name != "type"}
    try:
        if fields.get("now") is not None:
            fields["now"] = instants.from_text(fields["now"])
        return kind(**fields)
    except (TypeError, ValueError, InvalidTransitionError) as error:
        raise PayloadError(f"is no {kind.type}: {error}", what="task", cannot_be="read") from None


@dataclass(frozen=True, slots=True)
class TaskOutcome:
    """What handling a task committed: a redelivery that wrote nothing reports nothing but the run."""

    task: FlowTask
    run_ids: tuple[str, ...] = ()
    resumed_waits: tuple[tuple[str, str], ...] = ()
    resumed_retries: tuple[tuple[str, str], ...] = ()
    resumed_hook: tuple[str, str] | None = None
    disposed_hook: tuple[str, str] | None = None
