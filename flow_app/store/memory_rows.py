"""What events leave besides the log, in memory: hooks, progress and links of one run."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

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
from flow_app.core.payload import Payload
from flow_app.core.ports import HookRow, NewEvent
from flow_app.core.snapshot import HookStatus
from flow_app.errors import HookTokenConflictError, StoreError


@dataclass(slots=True)
class Rows:
    """One run's rows. :meth:`after` leaves them as they are and returns new ones."""

    run_id: str
    hooks: dict[str, HookRow] = field(default_factory=dict)
    progress: dict[str, Payload] = field(default_factory=dict)
    children: dict[str, Payload] = field(default_factory=dict)

    def after(
        self,
        events: Sequence[NewEvent],
        *,
        check_target: Callable[[str], object],
        check_token: Callable[[str, str], None],
    ) -> Rows:
        rows = Rows(self.run_id, dict(self.hooks), dict(self.progress), dict(self.children))
        for new in events:
            match new.event:
                case HookCreated() as event:
                    check_token(self.run_id, event.token)
                    rows._open(event)
                case HookReceived(hook_id=hook_id, payload=payload):
                    rows._close(hook_id, HookStatus.RECEIVED, received=payload)
                case HookDisposed(hook_id=hook_id):
                    rows._close(hook_id, HookStatus.DISPOSED)
                case HookExpired(hook_id=hook_id):
                    rows._close(hook_id, HookStatus.EXPIRED)
                case RunProgressRecorded() as event:
                    rows.progress[event.progress_id] = event.progress
                case ChildOperationLinked() as event:
                    if event.flow_run_id is not None and event.flow_run_id != self.run_id:
                        check_target(event.flow_run_id)
                    rows.children[event.reference_id] = event.child
                case Event() as event if isinstance(event, CLOSING):
                    for hook in list(rows._active()):
                        rows._close(hook.hook_id, HookStatus.CANCELLED)
        return rows

    def _active(self) -> list[HookRow]:
        return [hook for hook in self.hooks.values() if hook.status is HookStatus.ACTIVE]

    def _open(self, event: HookCreated) -> None:
        for other in self._active():
            if other.token_digest == event.token:
                raise HookTokenConflictError(owner_run_id=self.run_id, owner_hook_id=other.hook_id)
        self.hooks[event.hook_id] = HookRow(
            run_id=self.run_id,
            hook_id=event.hook_id,
            token_digest=event.token,
            status=HookStatus.ACTIVE,
            metadata=event.metadata,
            expires_at=event.expires_at,
            received=None,
        )

    def _close(self, hook_id: str, status: HookStatus, *, received: Payload | None = None) -> None:
        if hook_id not in self.hooks:
            raise StoreError(f"Run {self.run_id!r} has no row for hook {hook_id!r}.")
        self.hooks[hook_id] = dataclasses.replace(self.hooks[hook_id], status=status, received=received)
