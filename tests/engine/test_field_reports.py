"""Reported failures of systems of this kind, each tried here; numbers as in the collection."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest
from django.db import OperationalError, connection, transaction

from flow_app import ChildOperationReference, WorkflowProgress, step
from flow_app.core.tasks import FlowTask
from flow_app.dispatch import FlowScheduler, InlineDispatcher
from flow_app.engine import FlowEngine
from flow_app.errors import HookConflictError, RunTerminalError
from flow_app.store import DjangoEventStore
from flow_app.testing import FakeClock
from tests.engine.conftest import inline_engine
from tests.engine.deploys import redefine
from tests.engine.logbook import story

START = datetime(2030, 1, 1, tzinfo=UTC)
HOUR = timedelta(hours=1)
MINUTE = timedelta(minutes=1)

on_the_database = pytest.mark.parametrize(
    "store", [pytest.param("django", marks=pytest.mark.django_db(transaction=True))], indirect=True
)


def waits_for_hook(name: str = "approval") -> None:
    redefine(name, lambda ctx: ctx.complete(ctx.hook_payload("h")) if ctx.hook_received("h") else ctx.create_hook("h"))


class Sometimes(InlineDispatcher):
    """Raises for some runs, ``before`` or ``after`` the message went out."""

    def __init__(self, engine: FlowEngine) -> None:
        super().__init__(engine)
        self.fails: dict[str, str] = {}
        self.sent: list[str] = []

    def dispatch(self, task: FlowTask) -> None:
        run_id = str(task.explicit_run_id)
        if self.fails.get(run_id) == "before":
            raise OperationalError("the broker is away")
        self.sent.append(run_id)
        super().dispatch(task)
        if self.fails.get(run_id) == "after":
            raise OperationalError("the broker is away, it seems")


@pytest.fixture
def dispatcher(engine: FlowEngine) -> Sometimes:
    engine.services.dispatcher = dispatcher = Sometimes(engine)
    return dispatcher


# --- lost or stuck work ---------------------------------------------------------------------------------------------


def test_field_report_01_a_send_that_fails_stops_no_other(
    engine: FlowEngine, dispatcher: Sometimes, clock: FakeClock
) -> None:
    waits_for_hook()
    engine.services.dispatcher = None
    ids = [engine.start("approval", run_id=f"r{index:02}") for index in range(50)]
    for run_id in ids:
        engine.store.claim(run_id, lease=MINUTE)
    clock.advance(MINUTE)
    dispatcher.fails = {"r02": "before"}
    report = FlowScheduler(engine, dispatcher).tick()
    assert (len(report.dispatched), [run.run_id for run in report.failed]) == (49, ["r02"])
    dispatcher.fails = {}
    clock.advance(MINUTE)
    assert FlowScheduler(engine, dispatcher).tick().run_ids == ["r02"]
    assert all(engine.snapshot(run_id).status == "suspended" for run_id in ids)


def test_field_report_02_a_run_of_an_unknown_workflow_stops_no_other(engine: FlowEngine, clock: FakeClock) -> None:
    from flow_app.authoring import registry

    waits_for_hook("good")
    dispatcher, engine.services.dispatcher = engine.services.dispatcher, None
    with registry.workflows.isolated():
        waits_for_hook("gone")
        for index in range(9):
            engine.start("gone" if index == 4 else "good", run_id=f"r{index}")
    clock.advance(MINUTE)
    report = FlowScheduler(engine, dispatcher).tick()
    assert [run.run_id for run in report.failed] == ["r4"]
    assert engine.store.row("r4").blocked_code == "workflow_not_registered"
    assert all(engine.snapshot(f"r{index}").status == "suspended" for index in range(9) if index != 4)
    assert engine.store.row("r4").lease_expires_at is None


class Power(BaseException):
    """The plug is pulled."""


@contextmanager
def power_cut(moment: int) -> Iterator[list[str]]:
    """From its ``moment``-th statement on, the database answers no more."""
    seen: list[str] = []

    def statement(execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        seen.append(sql)
        if len(seen) >= moment:
            raise Power
        return execute(sql, params, many, context)

    with connection.execute_wrapper(statement):
        yield seen


def a_bit_of_everything() -> None:
    step("leaf")(lambda data: data)

    def decide(ctx: Any) -> Any:
        if not ctx.step_completed("s"):
            return ctx.schedule_step("s", "leaf", 1)
        if ctx.progress("p") is None:
            return ctx.record_progress(WorkflowProgress("p", 1))
        if ctx.child_operation("c") is None:
            return ctx.link_child_operation(ChildOperationReference("c", "k", "o"))
        if not ctx.hook_received("h"):
            return ctx.create_hook("h")
        return ctx.complete("end")

    redefine("all", decide)


@pytest.mark.django_db(transaction=True)
def test_field_report_05_projections_and_events_are_written_both_or_neither() -> None:
    a_bit_of_everything()
    moment, ended = 0, False
    while not ended:
        moment += 1
        clock = FakeClock()
        store = DjangoEventStore(clock=clock)
        engine, run_id = inline_engine(store), f"r{moment}"
        try:
            with power_cut(moment):
                engine.start("all", run_id=run_id)
                engine.resume_hook(run_id, "h", 1)
            ended = True
        except Power:
            pass
        if run_id in engine.list_run_ids():
            agrees(engine, run_id)
        clock.advance(MINUTE)
        engine.start("all", run_id=run_id)
        engine.resume_hook(run_id, "h", 1)
        assert engine.snapshot(run_id).output == "end"
        agrees(engine, run_id)
    assert moment > 15


def agrees(engine: FlowEngine, run_id: str) -> None:
    """Rows say what the log says."""
    snapshot, row = engine.snapshot(run_id), engine.store.row(run_id)
    active = [hook_id for hook_id, hook in snapshot.hooks.items() if hook.status == "active"]
    assert (row.last_sequence, row.status, row.active_hooks) == (snapshot.last_sequence, snapshot.status, len(active))
    assert [hook.hook_id for hook in engine.list_active_hooks() if hook.run_id == run_id] == active
    for hook_id, hook in snapshot.hooks.items():
        stored = engine.store.hook(row, hook_id)
        assert stored is not None
        assert stored.status == hook.status
    assert (engine.store.hook(row, "h") is None) == ("h" not in snapshot.hooks)
    assert (engine.store.progress(row, "p") is None) == (not snapshot.progress)
    assert (engine.store.child_operation(row, "c") is None) == (not snapshot.child_operations)


def test_field_report_07_expiry_alone_decides_about_a_lease(engine: FlowEngine, clock: FakeClock) -> None:
    waits_for_hook()
    engine.services.dispatcher = None
    engine.start("approval", run_id="r")
    first = engine.store.claim("r", lease=MINUTE)
    assert first is not None
    again = inline_engine(engine.store)  # same host, same process, same name
    assert again.resume_scheduled_run("r") == []
    assert engine.store.row("r").lease_epoch == first.lease_epoch
    clock.advance(MINUTE)
    again.resume_scheduled_run("r")
    assert engine.snapshot("r").status == "suspended"
    assert not engine.store.renew(first, lease=MINUTE)


def test_field_report_08_a_pass_that_dies_leaves_no_lock(engine: FlowEngine, clock: FakeClock) -> None:
    waits_for_hook()
    dispatcher, engine.services.dispatcher = engine.services.dispatcher, None
    for index in range(5):
        engine.start("approval", run_id=f"r{index}")
    clock.advance(MINUTE)

    class Dying(InlineDispatcher):
        def dispatch(self, task: FlowTask) -> None:
            raise Power

    with pytest.raises(Power):
        FlowScheduler(engine, Dying(engine)).tick()
    clock.advance(MINUTE)
    assert len(FlowScheduler(engine, dispatcher).tick().dispatched) == 5


@on_the_database
@pytest.mark.parametrize("when", ["before", "after"])
def test_field_report_10_a_broker_that_is_away_after_the_commit_costs_nothing(
    engine: FlowEngine, dispatcher: Sometimes, clock: FakeClock, when: str
) -> None:
    waits_for_hook()
    dispatcher.fails = {"r": when}
    with transaction.atomic():
        assert engine.start("approval", run_id="r") == "r"
    dispatcher.fails = {}
    clock.advance(MINUTE)
    FlowScheduler(engine).tick()
    assert story(engine, "r") == "C S hc:h"
    with transaction.atomic():
        dispatcher.fails = {"r": when}
        assert engine.resume_hook("r", "h", 1)
    dispatcher.fails = {}
    clock.advance(MINUTE)
    FlowScheduler(engine).tick()
    assert story(engine, "r") == "C S hc:h hr:h RC"


def test_field_report_11_and_25_a_long_outage_makes_one_hint_and_ever_fewer(
    engine: FlowEngine, dispatcher: Sometimes, clock: FakeClock
) -> None:
    redefine("later", lambda ctx: ctx.complete() if ctx.wait_completed("w") else ctx.wait_until("w", START + MINUTE))
    engine.start("later", run_id="r")
    dispatcher.sent.clear()
    dispatcher.fails = {"r": "before"}
    clock.advance(timedelta(minutes=78))
    times = []
    for minute in range(120):
        if FlowScheduler(engine).tick().has_due_work:
            times.append(minute)
        clock.advance(MINUTE)
    assert len(times) < 20
    assert max(late - early for early, late in pairwise(times)) <= 10
    dispatcher.fails = {}
    clock.advance(10 * MINUTE)
    FlowScheduler(engine).tick()
    assert dispatcher.sent == ["r"]
    assert engine.snapshot("r").status == "completed"


# --- duplicates -----------------------------------------------------------------------------------------------------


def test_field_report_17_a_waiting_run_holds_no_lease_and_no_clock(engine: FlowEngine, clock: FakeClock) -> None:
    waits_for_hook()
    engine.start("approval", run_id="r")
    row = engine.store.row("r")
    assert (row.lease_expires_at, row.wake_at) == (None, None)
    for _ in range(20):
        clock.advance(HOUR)
        assert not FlowScheduler(engine).tick().has_due_work
    assert engine.resume_hook("r", "h", 1)
    assert story(engine, "r") == "C S hc:h hr:h RC"


def test_field_report_22_a_repeated_answer_succeeds_and_wakes_the_run(engine: FlowEngine) -> None:
    waits_for_hook()
    engine.start("approval", run_id="r")
    dispatcher, engine.services.dispatcher = engine.services.dispatcher, None
    assert engine.resume_hook("r", "h", {"ok": True})
    engine.services.dispatcher = dispatcher
    assert not engine.resume_hook("r", "h", {"ok": True})
    assert story(engine, "r") == "C S hc:h hr:h RC"
    assert not engine.resume_hook("r", "h", {"ok": True})


# --- hooks ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("payload", [None, {}, 0, "", False, []], ids=repr)
def test_field_report_29_nothing_is_an_answer_and_no_expiry(engine: FlowEngine, clock: FakeClock, payload: Any) -> None:
    def decide(ctx: Any) -> Any:
        if not ctx.hook_received("a"):
            return ctx.create_hook("a", expires_at=START + HOUR)
        if not ctx.hook_expired("b"):
            return ctx.create_hook("b", expires_at=START + HOUR)
        if not ctx.hook_received("c"):
            return ctx.create_hook("c")
        return ctx.complete([ctx.hook_payload("a"), ctx.hook_received("b"), ctx.hook_expired("a")])

    redefine("answers", decide)
    engine.start("answers", run_id="r")
    assert engine.resume_hook("r", "a", payload)
    clock.advance(HOUR)
    FlowScheduler(engine).tick()
    with pytest.raises(HookConflictError):
        engine.resume_hook("r", "b", payload)
    inline_engine(engine.store).resume_hook("r", "c", payload)
    assert story(engine, "r") == "C S hc:a hr:a hc:b hx:b hc:c hr:c RC"
    output = engine.snapshot("r").output
    assert output == [payload, False, False]
    assert type(output[0]) is type(payload)


def test_field_report_32_what_loses_a_race_swallows_nothing_later(engine: FlowEngine, clock: FakeClock) -> None:
    def decide(ctx: Any) -> Any:
        for turn in range(3):
            hook_id, wait_id = f"h{turn}", f"w{turn}"
            if ctx.hook_received(hook_id) or ctx.wait_completed(wait_id):
                continue
            if not ctx.hook_created(hook_id):
                return ctx.create_hook(hook_id, "the-token" if turn != 1 else "another")
            return ctx.wait_until(wait_id, START + (turn + 1) * HOUR)
        return ctx.complete([ctx.hook_payload(f"h{turn}") for turn in range(3)])

    redefine("race", decide)
    engine.start("race", run_id="r")
    assert engine.resume_hook_by_token("the-token", 0) == ("r", "h0")
    clock.advance(2 * HOUR)
    FlowScheduler(engine).tick()
    assert engine.resume_hook_by_token("the-token", 2) == ("r", "h2")
    assert engine.snapshot("r").output == [0, None, 2]
    with pytest.raises(RunTerminalError):
        engine.resume_hook("r", "h1", 1)
    clock.advance(10 * HOUR)
    assert not FlowScheduler(engine).tick().has_due_work
    assert engine.list_active_hooks() == []
