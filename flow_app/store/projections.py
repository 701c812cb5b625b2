"""Rows besides the run's that events leave: hooks, progress, links. Written in the append's own transaction."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

from flow_app.core.events import (
    CLOSING,
    ChildOperationLinked,
    Event,
    HookCreated,
    HookDisposed,
    HookExpired,
    HookReceived,
    RunProgressRecorded,
)
from flow_app.core.payload import clean_text
from flow_app.core.ports import NewEvent
from flow_app.core.snapshot import HookStatus
from flow_app.errors import HookTokenConflictError, StoreError
from flow_app.models import ChildOperation, Hook, Progress
from flow_app.models.hook import kind_of
from flow_app.models.keys import text_key
from flow_app.store import chunks

#: Events that always leave a row of their own.
PROJECTED = (HookCreated, HookReceived, HookDisposed, HookExpired, RunProgressRecorded, ChildOperationLinked)


def leaves_rows(events: Sequence[NewEvent], *, active_hooks: int) -> bool:
    """Do these events touch more than the run and the log? Steps, the hot path, do not."""
    kinds = (*PROJECTED, *CLOSING) if active_hooks else PROJECTED
    return any(isinstance(new.event, kinds) for new in events)


def new_tokens(events: Sequence[NewEvent]) -> list[str]:
    """Token digests that these events make active."""
    return [new.event.token for new in events if isinstance(new.event, HookCreated)]


class Projector:
    """Applies one batch of events in order. Rows of the batch are held back and inserted together at its end."""

    def __init__(self, run_key: int, run_id: str, *, using: str, check_target: Callable[[str], None]) -> None:
        self.run_key = run_key
        self.run_id = run_id
        self.using = using
        self.check_target = check_target
        self.hooks: dict[str, Hook] = {}
        self.progress: list[Progress] = []
        self.children: list[ChildOperation] = []

    def apply_all(self, events: Sequence[NewEvent], *, after: int, active_hooks: int) -> None:
        for sequence, new in enumerate(events, after + 1):
            self._apply(sequence, new, active_hooks=active_hooks)
        if self.hooks:
            chunks.insert(Hook.objects.using(self.using), [*self.hooks.values()], payload="metadata")
        if self.progress:
            chunks.insert(Progress.objects.using(self.using), self.progress, payload="body")
        if self.children:
            chunks.insert(ChildOperation.objects.using(self.using), self.children, payload="body")

    def _apply(self, sequence: int, new: NewEvent, *, active_hooks: int) -> None:
        match new.event:
            case HookCreated() as event:
                self._open(event, at=new.recorded_at)
            case HookReceived(hook_id=hook_id, payload=payload):
                self._close(hook_id, new, status=HookStatus.RECEIVED, received=payload.text)
            case HookDisposed(hook_id=hook_id):
                self._close(hook_id, new, status=HookStatus.DISPOSED)
            case HookExpired(hook_id=hook_id):
                self._close(hook_id, new, status=HookStatus.EXPIRED)
            case RunProgressRecorded() as event:
                self._record(event, sequence)
            case ChildOperationLinked() as event:
                self._link(event)
            case Event() as event if isinstance(event, CLOSING):
                self._close_all(new, active_hooks=active_hooks)

    def _open(self, event: HookCreated, *, at: datetime) -> None:
        for other in self.hooks.values():
            if other.active_token_digest == event.token:
                raise HookTokenConflictError(owner_run_id=self.run_id, owner_hook_id=other.hook_id)
        self.hooks[event.hook_id] = Hook(
            run_id=self.run_key,
            hook_id=event.hook_id,
            hook_key=text_key(event.hook_id),
            token_digest=event.token,
            active_token_digest=event.token,
            metadata=event.metadata.text,
            kind=kind_of(event.metadata),
            created_at=at,
            expires_at=event.expires_at,
            status=HookStatus.ACTIVE.value,
        )

    def _close(self, hook_id: str, new: NewEvent, *, status: HookStatus, **columns: Any) -> None:
        columns |= _closed(new, status)
        if hook_id in self.hooks:
            _set(self.hooks[hook_id], columns)
            return
        rows = Hook.objects.using(self.using).filter(run_id=self.run_key).with_id(hook_id)
        if not rows.update(**columns):
            raise StoreError(
                f"Run {self.run_id!r} has no row for hook {hook_id!r}, which {new.event.type} would close."
            )

    def _close_all(self, new: NewEvent, *, active_hooks: int) -> None:
        columns = _closed(new, HookStatus.CANCELLED)
        for hook in self.hooks.values():
            if hook.status == HookStatus.ACTIVE.value:
                _set(hook, columns)
        if active_hooks:
            rows = Hook.objects.using(self.using).filter(run_id=self.run_key, status=HookStatus.ACTIVE.value)
            rows.update(**columns)

    def _record(self, event: RunProgressRecorded, sequence: int) -> None:
        self.progress.append(
            Progress(
                run_id=self.run_key,
                progress_id=event.progress_id,
                progress_key=text_key(event.progress_id),
                body=event.progress.text,
                sequence=sequence,
            )
        )

    def _link(self, event: ChildOperationLinked) -> None:
        target = event.flow_run_id
        if target is not None:
            self.check_target(target)
        self.children.append(
            ChildOperation(
                run_id=self.run_key,
                reference_id=event.reference_id,
                reference_key=text_key(event.reference_id),
                body=event.child.text,
                flow_run_id=target,
                flow_run_key=None if target is None else text_key(target),
            )
        )


def _closed(new: NewEvent, status: HookStatus) -> dict[str, Any]:
    return {
        "status": status.value,
        "active_token_digest": None,
        "resolved_at": new.recorded_at,
        "resolved_by": clean_text(str(new.meta.get("actor") or ""), limit=1000),
    }


def _set(hook: Hook, columns: dict[str, Any]) -> None:
    for name, value in columns.items():
        setattr(hook, name, value)
