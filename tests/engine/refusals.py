"""Acts that must be refused: with one kind of error, and nothing written."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from flow_app import workflow
from flow_app.core.ports import EventStore
from flow_app.engine import FlowEngine
from flow_app.errors import FlowError


def everything(store: EventStore) -> Any:
    """All that the store shows."""
    runs = {run_id: (store.row(run_id), store.history(run_id)) for run_id in store.run_ids()}
    return runs, store.active_hooks(), store.summary()


def waiting_run(engine: FlowEngine) -> None:
    """A run ``r`` that waits for its hook ``h`` of the token ``t``."""

    @workflow("waits")
    def waits(ctx: Any) -> Any:
        return ctx.complete() if ctx.hook_received("h") else ctx.create_hook("h", "t")

    engine.start("waits", run_id="r")


def refused(engine: FlowEngine, error: type[FlowError], act: Callable[[], Any]) -> FlowError:
    """The act raises just this kind, and nothing is written."""
    before = everything(engine.store)
    with pytest.raises(error) as caught:
        act()
    assert everything(engine.store) == before
    return caught.value


def blocked(engine: FlowEngine, error: type[FlowError], decide: Callable[[Any], Any]) -> FlowError:
    """A workflow that asks for this is blocked with just this kind, and nothing of its decision is written."""
    workflow("asks")(lambda ctx: decide(ctx))
    with pytest.raises(error) as caught:
        engine.start("asks", run_id="asking")
    assert [item.type for item in engine.history("asking")] == ["run_created", "run_started"]
    row = engine.store.row("asking")
    assert row.blocked_code == caught.value.code
    assert row.lease_expires_at is None
    assert row.wake_at is not None
    assert engine.store.active_hooks() == []
    return caught.value
