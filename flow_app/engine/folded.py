"""What is appended from outside to a run whose history had to be folded, as for waits and retries."""

from __future__ import annotations

from flow_app.core.events import Event
from flow_app.core.ports import Recorded, RunRow
from flow_app.core.projection import evolve
from flow_app.core.state import RunState
from flow_app.engine import rows
from flow_app.engine.services import Meta, Services


def append(services: Services, row: RunRow, state: RunState, event: Event, *, meta: Meta | None = None) -> None:
    """Append one event that makes the run runnable; ``row`` is locked and ``state`` is its fold."""
    now = services.store.clock.now()
    evolve(state, Recorded(state.last_sequence + 1, event, now))
    change = rows.of_state(row, state, now=now) | rows.runnable(row, now=now)
    services.append(row, (event,), change=change, meta=meta)
