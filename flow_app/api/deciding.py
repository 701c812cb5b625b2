"""Answering and withdrawing hooks, and telling who comes too late what stands."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from flow_app.answering import check_answer
from flow_app.api.committing import commit
from flow_app.api.fields import plain, shown
from flow_app.api.problems import Refused
from flow_app.api.serializers import FlowStanding, standing_status
from flow_app.core.actor import Actor
from flow_app.core.snapshot import HookStatus
from flow_app.engine import FlowEngine
from flow_app.errors import HookConflictError, RunTerminalError
from flow_app.models import Hook

_GONE = {
    HookStatus.DISPOSED: ("hook_disposed", gettext_lazy("The hook was withdrawn, and takes no answer any more.")),
    HookStatus.EXPIRED: (
        "hook_expired",
        gettext_lazy("The hook's deadline has passed, and it takes no answer any more."),
    ),
    HookStatus.CANCELLED: (
        "hook_cancelled",
        gettext_lazy("The run has ended or is being cancelled: the hook takes no answer."),
    ),
}


#: What of an answer that stands is shown to who comes too late.
Show = Callable[[Any], Any]


def verdict(value: Any) -> Any:
    """Of an answer, for who may not see payloads: whether it approves, if it says so."""
    approved = value.get("approved") if isinstance(value, dict) else None
    return {"approved": approved} if isinstance(approved, bool) else None


def resume(engine: FlowEngine, hook: Hook, payload: Any, *, actor: Actor, show: Show) -> None:
    """Answer a hook. The same answer again is fine; Refused says what stands, HookPayloadError what is wrong."""
    run_id, hook_id = hook.run.run_id, hook.hook_id
    if standing_status(hook, now=engine.store.clock.now()) == HookStatus.ACTIVE:
        check_answer(hook_id, plain(hook.metadata), payload)
    try:
        commit(engine, lambda: engine.resume_hook(run_id, hook_id, payload, actor=actor))
    except (HookConflictError, RunTerminalError):
        raise _refused(hook, now=engine.store.clock.now(), show=show) from None


def dispose(engine: FlowEngine, hook: Hook, *, actor: Actor, show: Show) -> None:
    """Withdraw a hook. Again is fine; Refused says what stands."""
    run_id, hook_id = hook.run.run_id, hook.hook_id
    try:
        commit(engine, lambda: engine.dispose_hook(run_id, hook_id, actor=actor))
    except (HookConflictError, RunTerminalError):
        raise _refused(hook, now=engine.store.clock.now(), show=show) from None


def _refused(hook: Hook, *, now: datetime, show: Show) -> Refused:
    """409 with the answer that stands, 410 for a hook that was closed without one."""
    hook.refresh_from_db()
    status = HookStatus(standing_status(hook, now=now))
    stands = {"status": status.value, "payload": shown(show(plain(hook.received))), "resolved_at": hook.resolved_at}
    standing = dict(FlowStanding(stands).data)
    if status is HookStatus.RECEIVED:
        return Refused(409, "hook_conflict", _("The hook is answered already, in another way."), standing=standing)
    code, text = _GONE.get(status, _GONE[HookStatus.CANCELLED])
    return Refused(410, code, str(text), standing=standing)
