"""What an operator does to a run that is no event of it: pause it, let it go on, have it looked at now."""

from __future__ import annotations

import logging

from flow_app.core.payload import one_line
from flow_app.core.ports import RunRow
from flow_app.engine import rows
from flow_app.engine.services import Services
from flow_app.errors import InvalidTransitionError, RunTerminalError

logger = logging.getLogger("flow_app.engine")


def pause(services: Services, run_id: str, *, actor: str | None) -> bool:
    """Put an open run to sleep; False when it sleeps already. See :meth:`FlowEngine.pause`."""
    store = services.store

    def put_to_sleep() -> bool:
        row = _open(services, run_id, takes_no_more="pauses")
        if row.paused_at is not None:
            return False
        store.park(row, change=rows.paused(store.clock.now(), by=actor or ""))
        return True

    paused = store.transact(put_to_sleep)
    if paused:
        _log("is paused", run_id, actor)
    return paused


def unpause(services: Services, run_id: str, *, actor: str | None) -> bool:
    """Let a paused run go on; False when it is not paused. See :meth:`FlowEngine.unpause`."""
    store = services.store

    def wake() -> RunRow | None:
        row = _open(services, run_id, takes_no_more="wake-ups")
        if row.paused_at is None:
            return None
        # What arrived meanwhile may have made it runnable, or not: whoever drives it finds out.
        change = rows.unpaused(row) | rows.due(row, now=store.clock.now())
        services.wake_steps(row)
        return store.park(row, change=change)

    row = store.transact(wake)
    if row is None:
        return False
    _log("is paused no more", run_id, actor)
    dispatcher = services.dispatcher
    if dispatcher is not None and dispatcher.has_route(row.build):  # else the scheduler says what it waits for
        services.dispatch_drive(run_id, row.build)
    return True


def run_now(services: Services, run_id: str, *, actor: str | None) -> bool:
    """Have a run looked at now; False when somebody drives it already. See :meth:`FlowEngine.run_now`."""
    store = services.store

    def make_due() -> RunRow | None:
        row = _open(services, run_id, takes_no_more="wake-ups")
        if row.paused_at is not None:
            raise InvalidTransitionError("it is paused. Call unpause, which lets it go on at once", run_id=run_id)
        services.admit(run_id, row.build, or_routed=True)
        now = store.clock.now()
        if row.lease_expires_at is not None and row.lease_expires_at > now:
            return None
        services.wake_steps(row)
        return store.park(row, change=rows.due(row, now=now))

    row = store.transact(make_due)
    if row is None:
        return False
    _log("is looked at now", run_id, actor)
    services.dispatch_drive(run_id, row.build)
    return True


def _log(what: str, run_id: str, actor: str | None) -> None:
    who = one_line(actor, limit=200) if actor else None
    by = f", by {who}" if who else ""
    logger.info("Run %s %s%s", run_id, what, by, extra={"run_id": run_id, "actor": who})


def _open(services: Services, run_id: str, *, takes_no_more: str) -> RunRow:
    """The row, locked. Raises RunNotFoundError, and RunTerminalError for a run that has ended."""
    row = services.store.lock(run_id)
    if row.status.is_terminal:
        raise RunTerminalError(run_id, takes_no_more)
    return row
