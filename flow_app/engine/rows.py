"""What an append changes on the run's row: the projection that look-ups and the scheduler decide by."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from operator import attrgetter
from typing import Any, cast

from flow_app.core.events import Event, RunProgressRecorded
from flow_app.core.ports import RunChange, RunRow, WakeReason
from flow_app.core.remote import Awaited
from flow_app.core.snapshot import OutcomeType, RunStatus
from flow_app.core.state import RunState

_SHOWN = ("status", "open_waits", "active_hooks", "pending_retries", "timer_at")
_shown = attrgetter(*_SHOWN)
_FIRST_BLOCK = timedelta(seconds=5)
_LONGEST_BLOCK = timedelta(minutes=5)


def of_state(row: RunRow, state: RunState, *, now: datetime) -> RunChange:
    """The columns in which the row does not yet show ``state``."""
    before = _shown(row)
    after = (
        state.status,
        len(state.open_waits),
        len(state.active_hooks),
        len(state.delayed_steps),
        state.next_timer(),
    )
    change = RunChange()
    if before != after:
        triples = zip(_SHOWN, before, after, strict=True)
        change = cast(RunChange, {name: new for name, old, new in triples if old != new})
    if state.outcome is not None and not row.status.is_terminal:
        change |= ended(state.status, state.outcome.type, error=state.error, now=now)
        change |= unpaused(row) | recalled(row)
    return change


def ended(status: RunStatus, outcome: OutcomeType, *, error: str | None, now: datetime) -> RunChange:
    """A run that has ended: nothing open, nothing to wake for, no lease."""
    return RunChange(
        status=status,
        outcome=outcome,
        finished_at=now,
        error=error or "",
        open_waits=0,
        active_hooks=0,
        pending_retries=0,
        timer_at=None,
        wake_at=None,
        wake_reason=WakeReason.ENDED,
        lease_expires_at=None,
    )


def of_progress(events: Iterable[Event]) -> RunChange:
    """The latest progress among ``events``, for lists that show it."""
    change = RunChange()
    for event in events:
        if isinstance(event, RunProgressRecorded):
            tree: dict[str, Any] = event.progress.tree  # type: ignore[assignment]
            change["progress_completed"] = min(tree["completed"], 2**63 - 1)
            total = tree.get("total")
            change["progress_total"] = None if total is None else min(total, 2**63 - 1)
            change["progress_message"] = tree.get("message", "")
    return change


def runnable(row: RunRow, *, now: datetime) -> RunChange:
    """Something happened to the run: look at it now, unless somebody does so earlier. A paused run sleeps on."""
    if row.paused_at is not None:
        return RunChange()
    wake_at = now if row.wake_at is None else min(row.wake_at, now)
    change = RunChange(wake_at=wake_at)
    if row.lease_expires_at is None:
        change["wake_reason"] = WakeReason.RUNNABLE
    return change


def parked(state: RunState) -> RunChange:
    """Nothing to do now: no lease, and the earliest of everything open as the next wake-up."""
    return RunChange(lease_expires_at=None, wake_at=state.next_timer(), wake_reason=_why(state))


def _why(state: RunState) -> WakeReason:
    timer = state.next_timer()
    if timer is None:
        return WakeReason.HOOK if state.active_hooks else WakeReason.STEPS
    if any(state.waits[wait_id].resume_at == timer for wait_id in state.open_waits):
        return WakeReason.TIMER
    if any(state.hooks[hook_id].expires_at == timer for hook_id in state.active_hooks):
        return WakeReason.HOOK
    return WakeReason.RETRY


def blocked(
    row: RunRow, *, code: str, text: str, traceback: str, now: datetime, timer: datetime | None = None
) -> RunChange:
    """The run cannot go on as it is: try again later, ever later, up to five minutes, or when its next timer is due."""
    again = row.blocked_code == code
    count = row.blocked_count + 1 if again else 1
    wake_at = now + min(_FIRST_BLOCK * 2 ** min(count - 1, 10), _LONGEST_BLOCK)
    if timer is not None and timer > now:  # one that is due already has been tried just now
        wake_at = min(wake_at, timer)
    return RunChange(
        lease_expires_at=None,
        wake_at=wake_at,
        wake_reason=WakeReason.BLOCKED,
        blocked_code=code,
        blocked_text=text,
        blocked_traceback=traceback,
        blocked_since=row.blocked_since if again else now,
        blocked_count=count,
    )


def recalled(row: RunRow) -> RunChange:
    """The run has ended, and no step is out any more: the store forgets them in the same append."""
    return RunChange(steps_out=0, steps_awaited=Awaited.NONE.value) if row.steps_out else RunChange()


def awaiting(row: RunRow, which: Awaited) -> RunChange:
    """Parked with steps out: which of their outcomes brings the run back."""
    return RunChange(steps_awaited=which.value) if row.steps_out else RunChange()


def asleep(row: RunRow, change: RunChange) -> RunChange:
    """The same change without a wake-up, if the run is paused."""
    if row.paused_at is None:
        return change
    return cast(RunChange, {name: value for name, value in change.items() if name not in ("wake_at", "wake_reason")})


def paused(now: datetime, *, by: str) -> RunChange:
    """Nobody looks at the run; who drives it finds its next append refused."""
    return RunChange(paused_at=now, paused_by=by, wake_at=None, wake_reason=WakeReason.PAUSED, dispatches=0)


def unpaused(row: RunRow) -> RunChange:
    return RunChange() if row.paused_at is None else RunChange(paused_at=None, paused_by="")


def due(row: RunRow, *, now: datetime) -> RunChange:
    """Look at the run now, whatever it waits for; one that is being driven, when its lease ends."""
    if row.lease_expires_at is not None and row.lease_expires_at > now:
        return RunChange(wake_at=row.lease_expires_at, wake_reason=WakeReason.DRIVING, dispatches=0)
    return RunChange(wake_at=now, wake_reason=WakeReason.RUNNABLE, dispatches=0)


def unblocked(row: RunRow) -> RunChange:
    """The run moves again."""
    if not row.blocked_code:
        return RunChange()
    return RunChange(blocked_code="", blocked_text="", blocked_traceback="", blocked_since=None, blocked_count=0)
