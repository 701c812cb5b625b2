"""A run's state while it is driven: indexed, folded forward in place, and able to take steps back.

The driver folds events before they are committed, so that one commit can carry an outcome and the next decision. When
the commit is refused, ``rollback`` undoes just those events: a long history is never folded twice.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, TypeVar

from flow_app.core.payload import Payload
from flow_app.core.policy import ChildOperationReference, WorkflowProgress
from flow_app.core.snapshot import (
    Cancellation,
    HookSnapshot,
    HookStatus,
    RunStatus,
    StepSnapshot,
    TerminalOutcome,
    WaitSnapshot,
    WaitStatus,
    WorkflowRunSnapshot,
)
from flow_app.core.spec import WorkflowSpec

T = TypeVar("T")

_ABSENT: Any = object()


class RunState:
    """What the fold of a history gives. Only :mod:`flow_app.core.projection` changes it."""

    __slots__ = (
        "_journal", "active_hooks", "cancellation", "child_operations", "created_at", "delayed_steps", "error", "hooks",
        "input_payload", "last_sequence", "lifecycle", "open_steps", "open_waits", "outcome", "progress", "run_id",
        "spec", "steps", "unreported_failure", "waits",
    )  # fmt: skip

    def __init__(self, run_id: str) -> None:
        self.run_id = run_id
        self.created_at: datetime | None = None
        self.spec: WorkflowSpec | None = None
        self.input_payload: Payload | None = None
        self.lifecycle = RunStatus.PENDING  # without ``suspended``, which is derived
        self.last_sequence = 0
        self.steps: dict[str, StepSnapshot] = {}
        self.waits: dict[str, WaitSnapshot] = {}
        self.hooks: dict[str, HookSnapshot] = {}
        self.open_steps: dict[str, None] = {}  # pending or running
        self.delayed_steps: dict[str, None] = {}  # pending with a retry time
        self.open_waits: dict[str, None] = {}
        self.active_hooks: dict[str, None] = {}
        self.progress: dict[str, Payload] = {}
        self.child_operations: dict[str, Payload] = {}
        self.cancellation: Cancellation | None = None
        self.outcome: TerminalOutcome | None = None
        self.error: str | None = None
        #: A step that failed for good under fail_run, while run_retry_exhausted is still to follow.
        self.unreported_failure: str | None = None
        self._journal: list[tuple[Any, Any, Any]] | None = None

    # --- reading ----------------------------------------------------------------------------------------------------

    @property
    def status(self) -> RunStatus:
        if self.lifecycle is RunStatus.RUNNING and (self.open_waits or self.active_hooks or self.delayed_steps):
            return RunStatus.SUSPENDED
        return self.lifecycle

    @property
    def is_terminal(self) -> bool:
        return self.outcome is not None

    def next_timer(self) -> datetime | None:
        """The earliest open timer, hook deadline or delayed retry."""
        times = [self.waits[wait_id].resume_at for wait_id in self.open_waits]
        times += [at for hook_id in self.active_hooks if (at := self.hooks[hook_id].expires_at) is not None]
        times += [at for step_id in self.delayed_steps if (at := self.steps[step_id].retry_after) is not None]
        return min(times, default=None)

    def snapshot(self) -> WorkflowRunSnapshot:
        """A frozen copy for callers, maps sorted by id."""
        assert self.spec is not None
        assert self.input_payload is not None
        return WorkflowRunSnapshot(
            run_id=self.run_id,
            spec=self.spec,
            input_payload=self.input_payload,
            status=self.status,
            steps=dict(sorted(self.steps.items())),
            waits=dict(sorted(self.waits.items())),
            hooks=dict(sorted(self.hooks.items())),
            cancellation=self.cancellation,
            progress=tuple(WorkflowProgress.from_payload(payload) for payload in self.progress.values()),
            child_operations={
                reference_id: ChildOperationReference.from_payload(payload)
                for reference_id, payload in sorted(self.child_operations.items())
            },
            terminal_outcome=self.outcome,
            error=self.error,
            last_sequence=self.last_sequence,
        )

    # --- changing, one write at a time ------------------------------------------------------------------------------

    def assign(self, name: str, value: object) -> None:
        if self._journal is not None:
            self._journal.append((None, name, getattr(self, name)))
        setattr(self, name, value)

    def put(self, mapping: dict[str, T], key: str, value: T) -> None:
        if self._journal is not None:
            self._journal.append((mapping, key, mapping.get(key, _ABSENT)))
        mapping[key] = value

    def drop(self, mapping: dict[str, None], key: str) -> None:
        if key in mapping:
            if self._journal is not None:
                self._journal.append((mapping, key, None))
            del mapping[key]

    def put_step(self, step: StepSnapshot) -> None:
        step_id = step.step_id
        self.put(self.steps, step_id, step)
        if (step_id in self.open_steps) is step.is_settled:
            self._index(self.open_steps, step_id, member=not step.is_settled)
        if step.retry_after is not None or step_id in self.delayed_steps:
            self._index(self.delayed_steps, step_id, member=step.retry_after is not None)

    def put_wait(self, wait: WaitSnapshot) -> None:
        self.put(self.waits, wait.wait_id, wait)
        self._index(self.open_waits, wait.wait_id, member=wait.status is WaitStatus.WAITING)

    def put_hook(self, hook: HookSnapshot) -> None:
        self.put(self.hooks, hook.hook_id, hook)
        self._index(self.active_hooks, hook.hook_id, member=hook.status is HookStatus.ACTIVE)

    def _index(self, index: dict[str, None], key: str, *, member: bool) -> None:
        if not member:
            self.drop(index, key)
        elif key not in index:
            self.put(index, key, None)

    # --- taking steps back ------------------------------------------------------------------------------------------

    def mark(self) -> int:
        """Begin, or go on, recording what changes; returns a point to roll back to."""
        if self._journal is None:
            self._journal = []
        return len(self._journal)

    def rollback(self, mark: int = 0) -> None:
        """Undo every change made since ``mark``."""
        journal = self._journal or []
        while len(journal) > mark:
            mapping, key, old = journal.pop()
            if mapping is None:
                setattr(self, key, old)
            elif old is _ABSENT:
                del mapping[key]
            else:
                mapping[key] = old

    def commit(self) -> None:
        """Keep every change; what came before can no longer be undone."""
        self._journal = None
