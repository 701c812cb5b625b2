"""Answering and withdrawing hooks, decided on the hook's row: no history is read."""

from __future__ import annotations

from typing import NoReturn

from flow_app.core import events as ev
from flow_app.core import tokens
from flow_app.core.identifiers import check_id
from flow_app.core.payload import Payload
from flow_app.core.ports import HookRow, RunChange, RunRow
from flow_app.core.snapshot import HookStatus, RunStatus
from flow_app.engine import rows
from flow_app.engine.services import Meta, Services
from flow_app.errors import (
    HookConflictError,
    HookTokenNotFoundError,
    InvalidTransitionError,
    RunTerminalError,
)

_STANDS = {
    HookStatus.RECEIVED: "it is already resumed",
    HookStatus.DISPOSED: "it is already disposed",
    HookStatus.EXPIRED: "its deadline has passed",
    HookStatus.CANCELLED: "it is cancelled",
}


def resume(services: Services, run_id: str, hook_id: str, payload: object, *, meta: Meta | None = None) -> bool:
    """Answer a hook; True when this call wrote the answer. See :meth:`FlowEngine.resume_hook`."""
    received = Payload.of(payload, what=f"payload of hook {hook_id!r}", limits=services.options.limits)
    return _resolve(services, run_id, hook_id, ev.HookReceived(hook_id, received), meta=meta)


def dispose(services: Services, run_id: str, hook_id: str, *, meta: Meta | None = None) -> bool:
    """Withdraw a hook; True when this call wrote it. See :meth:`FlowEngine.dispose_hook`."""
    return _resolve(services, run_id, hook_id, ev.HookDisposed(hook_id), meta=meta)


def by_token(services: Services, token: str) -> HookRow:
    """The one active hook with this token. Raises HookTokenNotFoundError."""
    found = services.store.active_hooks_by_token(tokens.digest(tokens.check_token(token)))
    if not found:
        raise HookTokenNotFoundError(token)
    if len(found) > 1:
        raise InvalidTransitionError("the token (not shown) is active on several hooks")
    return found[0]


def resume_by_token(services: Services, token: str, payload: object, *, meta: Meta | None = None) -> tuple[str, str]:
    hook = by_token(services, token)
    received = Payload.of(payload, what=f"payload of hook {hook.hook_id!r}", limits=services.options.limits)
    return _resolve_by_token(services, token, hook, ev.HookReceived(hook.hook_id, received), meta=meta)


def dispose_by_token(services: Services, token: str, *, meta: Meta | None = None) -> tuple[str, str]:
    hook = by_token(services, token)
    return _resolve_by_token(services, token, hook, ev.HookDisposed(hook.hook_id), meta=meta)


def _resolve_by_token(
    services: Services, token: str, hook: HookRow, event: ev.HookReceived | ev.HookDisposed, *, meta: Meta | None
) -> tuple[str, str]:
    try:
        _resolve(services, hook.run_id, hook.hook_id, event, meta=meta)
    except HookConflictError as error:
        if error.reason == _STANDS[HookStatus.EXPIRED]:  # by token, an expired hook is no hook at all
            raise HookTokenNotFoundError(token) from None
        raise
    return hook.run_id, hook.hook_id


def _resolve(
    services: Services,
    run_id: str,
    hook_id: str,
    event: ev.HookReceived | ev.HookDisposed,
    *,
    meta: Meta | None,
) -> bool:
    """Write how a hook was resolved, unless it is resolved already. Then dispatch the run."""
    check_id(hook_id, what="hook id")
    row, written = services.store.transact(lambda: _write(services, run_id, hook_id, event, meta))
    if isinstance(written, ev.HookExpired):
        _refuse_late(services, row, hook_id)
    if not row.status.is_terminal:
        services.dispatch_drive(run_id, row.build)
    return written is not None


def _write(
    services: Services, run_id: str, hook_id: str, event: ev.HookReceived | ev.HookDisposed, meta: Meta | None
) -> tuple[RunRow, ev.Event | None]:
    """Write what becomes of the hook, if anything does; the row after it."""
    row = services.store.lock(run_id)
    hook = services.store.hook(row, hook_id)
    if hook is None:
        _refuse_unknown(row, hook_id)
    decided = _decide(services, row, hook, event)
    if decided is not None:
        row = services.append(row, (decided,), change=_one_hook_less(services, row), meta=meta)
    return row, decided


def _decide(
    services: Services, row: RunRow, hook: HookRow, event: ev.HookReceived | ev.HookDisposed
) -> ev.Event | None:
    """What becomes of the hook: this, or its deadline has passed. None when it is resolved in just this way."""
    if row.status.is_terminal:
        _check_ended(row, hook, event)
        return None
    if hook.status in (HookStatus.ACTIVE, _resolved_as(event)):
        services.admit(row.run_id, row.build, or_routed=True)
    if hook.status is not HookStatus.ACTIVE:
        _check_same(row.run_id, hook, event)
        return None
    late = hook.expires_at is not None and hook.expires_at <= services.store.clock.now()
    return ev.HookExpired(hook.hook_id) if late else event


def _refuse_late(services: Services, row: RunRow, hook_id: str) -> NoReturn:
    """The run goes on without the answer. Whatever comes of that, the caller hears that the answer was refused."""
    refused = HookConflictError(row.run_id, hook_id, _STANDS[HookStatus.EXPIRED])
    try:
        services.dispatch_drive(row.run_id, row.build)
    except Exception as error:
        raise refused from error
    raise refused


def _refuse_unknown(row: RunRow, hook_id: str) -> NoReturn:
    if row.status.is_terminal:
        raise RunTerminalError(row.run_id, "answers to hooks")
    raise InvalidTransitionError(f"hook {hook_id!r} was never created", run_id=row.run_id)


def _resolved_as(event: ev.HookReceived | ev.HookDisposed) -> HookStatus:
    return HookStatus.RECEIVED if isinstance(event, ev.HookReceived) else HookStatus.DISPOSED


def _check_ended(row: RunRow, hook: HookRow, event: ev.HookReceived | ev.HookDisposed) -> None:
    """A run that has ended accepts a repetition of what was decided, and nothing else."""
    if hook.status in (HookStatus.ACTIVE, HookStatus.CANCELLED):
        raise RunTerminalError(row.run_id, "answers to hooks")
    _check_same(row.run_id, hook, event)


def _check_same(run_id: str, hook: HookRow, event: ev.HookReceived | ev.HookDisposed) -> None:
    """Raise HookConflictError unless the hook was resolved in just this way."""
    if hook.status is not _resolved_as(event):
        raise HookConflictError(run_id, hook.hook_id, _STANDS[hook.status])
    if isinstance(event, ev.HookReceived) and hook.received != event.payload:
        raise HookConflictError(run_id, hook.hook_id, "it is already resumed with a different payload")


def _one_hook_less(services: Services, row: RunRow) -> RunChange:
    change = rows.runnable(row, now=services.store.clock.now())
    change["active_hooks"] = left = row.active_hooks - 1
    if row.status is RunStatus.SUSPENDED and not (left or row.open_waits or row.pending_retries):
        change["status"] = RunStatus.RUNNING
    return change
