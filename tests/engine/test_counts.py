"""What a run of inline steps costs its database: statements and commits as they went over the wire.

Statements are counted on the driving connection, BEGIN and COMMIT included.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import connection

from flow_app.authoring.steps import step
from flow_app.authoring.workflows import workflow
from flow_app.conf import Options, Slice
from flow_app.engine import FlowEngine
from flow_app.store import DjangoEventStore
from tests.engine.conftest import inline_engine
from tests.engine.wire import Wire, listening

pytestmark = pytest.mark.django_db(transaction=True)

LENGTHS = (10, 100, 1000)

on_postgresql = pytest.mark.skipif(connection.vendor != "postgresql", reason="counts of PostgreSQL")
on_sqlite = pytest.mark.skipif(connection.vendor != "sqlite", reason="counts of SQLite")
on_mariadb = pytest.mark.skipif(connection.vendor != "mysql", reason="counts of MariaDB")


@pytest.fixture
def engine() -> FlowEngine:
    """The engine as projects have it, with the clock that fits the database; no lease grows old on a slow machine."""
    hour = timedelta(hours=1)
    options = Options(lease=hour, drive_slice=Slice(steps=1000, seconds=hour.total_seconds()))
    return inline_engine(DjangoEventStore(), options=options)


def run(engine: FlowEngine, steps: int, *, warm: bool = True, by_a_worker: bool = False) -> Wire:
    """Start a run of so many steps and drive it to its end; what went over the wire meanwhile.

    It is driven in the call that starts it, or ``by_a_worker``, who has got a message and nothing else.
    """

    @step("counted")
    def body(number: int) -> dict[str, Any]:
        return {"i": number, "ok": True}

    @workflow("counting")
    def counting(ctx):
        for number in range(ctx.input):
            if not ctx.step_completed(f"s{number}"):
                return ctx.schedule_step(f"s{number}", body, number)
        return ctx.complete({"n": ctx.input})

    if warm:
        engine.start(counting, 1)  # the connection is open, the server's clock read
    inline, engine.services.dispatcher = engine.services.dispatcher, None if by_a_worker else engine.services.dispatcher
    with listening(connection) as wire:
        run_id = engine.start(counting, steps)
        if by_a_worker:
            engine.resume_scheduled_run(run_id)
    engine.services.dispatcher = inline
    assert engine.store.row(run_id).status == "completed"
    assert len(engine.history(run_id)) == 3 * steps + 3
    return wire


@on_postgresql
@pytest.mark.parametrize("steps", LENGTHS)
def test_on_postgresql_a_step_is_one_statement(engine, steps):
    """The first carries the run and its first decision, each other an outcome and what comes next."""
    wire = run(engine, steps)
    assert wire.statements == ["INSERT"] * (steps + 1)


@on_postgresql
@pytest.mark.parametrize("steps", LENGTHS)
def test_on_postgresql_a_worker_claims_and_loads_once(engine, steps):
    wire = run(engine, steps, by_a_worker=True)
    start_claim_load = ["INSERT", "UPDATE", "SELECT"]
    assert wire.statements == start_claim_load + ["INSERT"] * (steps + 1)
    assert wire.commits <= steps + 3
    assert len(wire.statements) <= steps + 5


@on_postgresql
@pytest.mark.parametrize("steps", LENGTHS)
def test_on_postgresql_a_process_that_has_just_begun_reads_the_clock_once_more(engine, steps):
    wire = run(engine, steps, warm=False)
    assert wire.count("SELECT") == 1
    assert wire.commits <= steps + 3
    assert len(wire.statements) <= steps + 5


@on_sqlite
@pytest.mark.parametrize("steps", LENGTHS)
def test_on_sqlite_a_step_is_one_transaction_of_two_statements(engine, steps):
    wire = run(engine, steps)
    start = ["BEGIN", "INSERT", "INSERT", "COMMIT"]
    append = ["BEGIN", "UPDATE", "INSERT", "COMMIT"]
    assert wire.statements == start + append * steps
    assert wire.commits == steps + 1


@on_sqlite
@pytest.mark.parametrize("steps", LENGTHS)
def test_on_sqlite_a_worker_claims_and_loads_once(engine, steps):
    wire = run(engine, steps, by_a_worker=True)
    start = ["BEGIN", "INSERT", "INSERT", "COMMIT"]
    claim_load = ["BEGIN", "UPDATE", "SELECT", "COMMIT", "SELECT"]
    append = ["BEGIN", "UPDATE", "INSERT", "COMMIT"]
    assert wire.statements == start + claim_load + append * (steps + 1)
    assert wire.commits == steps + 3


@on_mariadb
@pytest.mark.parametrize("steps", LENGTHS)
@pytest.mark.parametrize("by_a_worker", [False, True])
def test_on_mariadb_a_step_is_one_transaction_of_two_statements(engine, steps, by_a_worker):
    wire = run(engine, steps, by_a_worker=by_a_worker)
    extra = 1 if by_a_worker else 0
    transactions = 1 + steps + 2 * extra  # start, one after each step; a worker's claim and first decision
    assert wire.count("COMMIT") == transactions
    assert wire.count("INSERT") == 2 + steps + extra  # the run and its first events; then one each
    assert wire.count("UPDATE") == steps + 2 * extra
    assert wire.count("SELECT") == 2 * extra  # the claimed row, and the history, once
    assert wire.count("SET") == 2 * transactions  # Django leaves autocommit, and returns to it
    assert len(wire.statements) == 5 * transactions + extra


def test_a_history_is_loaded_once_per_drive(engine, monkeypatch):
    loads = []
    load = engine.store.load
    monkeypatch.setattr(engine.store, "load", lambda row, **after: loads.append(row.run_id) or load(row, **after))
    run(engine, 50, warm=False)
    assert len(loads) == 0  # who starts the run knows it
    run(engine, 50, warm=False, by_a_worker=True)
    assert len(loads) == 1


def test_parking_travels_with_the_decision_it_follows(engine):
    @workflow("waiting")
    def waiting(ctx):
        return ctx.wait_until("a-day", datetime(2100, 1, 1, tzinfo=UTC))

    run(engine, 1)
    with listening(connection) as wire:
        engine.start(waiting)
    in_one = connection.vendor == "postgresql"
    assert wire.count("INSERT") == (1 if in_one else 2)  # the run with its first events, the wait and the park
    assert wire.count("UPDATE") == 0
    assert wire.count("COMMIT") == (0 if in_one else 1)
