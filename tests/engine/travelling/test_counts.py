"""What steps that travel cost their database: statements as they went over the wire, BEGIN and COMMIT included."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.db import connection

from flow_app import step, workflow
from flow_app.store import DjangoEventStore
from tests.engine.mailbox import Broker
from tests.engine.wire import listening

pytestmark = pytest.mark.django_db(transaction=True)

HOUR = timedelta(hours=1)  # no lease grows old on a slow machine


@pytest.fixture
def broker() -> Broker:
    broker = Broker(store=DjangoEventStore(), lease=HOUR)

    @step("job")
    def job(n: int) -> int:
        return n

    @workflow("batch")
    def batch(ctx: Any) -> Any:
        ids = [f"s{n}" for n in range(ctx.input)]
        if not all(ctx.step_completed(step_id) for step_id in ids):
            return ctx.schedule_steps([ctx.step(step_id, job, n) for n, step_id in enumerate(ids)])
        return ctx.complete(len(ids))

    @workflow("chain")
    def chain(ctx: Any) -> Any:
        for n in range(ctx.input):
            if not ctx.step_completed(f"s{n}"):
                return ctx.schedule_step(f"s{n}", job, n)
        return ctx.complete()

    broker.engine.start("chain", 1)  # the connection is open, the server's clock read
    broker.work_off()
    return broker


IN_ONE = connection.vendor == "postgresql"
APPEND = ["INSERT"] if IN_ONE else ["UPDATE", "INSERT"]


def told(statements: list[str]) -> list[str]:
    """MariaDB tells how many there were of each, and sets autocommit around transactions."""
    kept = [statement for statement in statements if statement not in ("SET", "BEGIN", "COMMIT")]
    return kept if connection.vendor != "mysql" else sorted(kept)


@pytest.mark.parametrize("size", [2, 10, 50])
def test_a_batch_is_sent_in_one_commit_whatever_its_size(broker, size):
    broker.engine.start("batch", size, run_id="r")
    with listening(connection) as wire:
        broker.drive()
    claim = ["UPDATE"] if IN_ONE else ["UPDATE", "SELECT"]
    load, append_and_notes = ["SELECT"], ["SELECT"] if IN_ONE else [*APPEND, "INSERT"]
    assert told(wire.statements) == told([*claim, *load, *append_and_notes])
    assert IN_ONE or wire.commits == 2 or connection.vendor == "mysql"


@pytest.mark.parametrize("size", [2, 50])
def test_an_outcome_costs_the_same_however_large_its_batch_and_history(broker, size):
    broker.engine.start("batch", size, run_id="r")
    broker.drive()
    with listening(connection) as wire:
        broker.deliver("s0")
    if IN_ONE:
        assert wire.statements == ["UPDATE", "SELECT"]  # taken; a SELECT over what its WITH writes
        return
    find, claim, fence = ["SELECT"], ["UPDATE"], ["SELECT", "DELETE"]
    assert told(wire.statements) == told([*find, *claim, *fence, *APPEND])


@pytest.mark.parametrize("sends", [True, False], ids=["can-send", "cannot"])
def test_a_run_of_ordinary_steps_pays_nothing_for_those_that_could_travel(broker, sends, monkeypatch):
    broker.engine.start("chain", 20, run_id="r")
    if not sends:
        monkeypatch.delattr(type(broker.box), "dispatch_step")
    with listening(connection) as wire:
        broker.drive()
    claim = ["UPDATE"] if IN_ONE else ["UPDATE", "SELECT"]
    assert told(wire.statements) == told([*claim, "SELECT", *APPEND * 21])
    assert broker.store.row("r").status == "completed"
