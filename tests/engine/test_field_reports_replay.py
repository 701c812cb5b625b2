"""Reported failures of systems of this kind: cancellation, changed code, the database, time and size."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from django.db import OperationalError, connection

from flow_app import RetryPolicy, step
from flow_app.dispatch import FlowScheduler
from flow_app.engine import FlowEngine
from flow_app.errors import FlowError, NonDeterministicError
from flow_app.store import DjangoEventStore
from flow_app.testing import FakeClock
from tests.engine.conftest import inline_engine
from tests.engine.deploys import redefine
from tests.engine.logbook import story

START = datetime(2030, 1, 1, tzinfo=UTC)
HOUR = timedelta(hours=1)
MINUTE = timedelta(minutes=1)


# --- cancellation ---------------------------------------------------------------------------------------------------


def test_field_report_34_a_cancelled_run_starts_nothing_ordinary(engine: FlowEngine) -> None:
    @step("first")
    def first() -> str:
        engine.request_cancellation("r", "stop")
        return "receipt"

    step("second")(lambda: pytest.fail("an ordinary step started"))
    step("clean")(lambda data: data)

    def decide(ctx: Any) -> Any:
        if ctx.cancellation_request is not None:
            if not ctx.step_completed("clean"):
                return ctx.schedule_step("clean", "clean", ctx.step_output("first"))
            return ctx.cancel()
        return (
            ctx.schedule_step("second", "second") if ctx.step_completed("first") else ctx.schedule_step("first", first)
        )

    redefine("stops", decide)
    engine.start("stops", run_id="r")
    assert story(engine, "r") == "C S sc:first ss:first#1 CR sk:first sc:clean ss:clean#1 sk:clean RX"
    assert engine.snapshot("r").step_output("clean") == "receipt"


STOPS: dict[str, Callable[[Any], Any]] = {
    "timer": lambda ctx: ctx.wait_until("open", START + HOUR),
    "hook": lambda ctx: ctx.create_hook("open"),
    "backoff": lambda ctx: ctx.schedule_step("open", "fails", retry=RetryPolicy.fixed(9, HOUR)),
    "blocked": lambda ctx: None,
    "not driven yet": lambda ctx: ctx.complete(),
}


@pytest.mark.parametrize("stop", STOPS.values(), ids=STOPS.keys())
def test_field_report_35_a_cancellation_ends_wherever_the_run_stands(
    engine: FlowEngine, clock: FakeClock, stop: Callable[[Any], Any]
) -> None:
    cleaned: list[int] = []

    @step("fails")
    def fails() -> None:
        raise ValueError

    @step("clean")
    def clean() -> None:
        cleaned.append(1)
        engine.request_cancellation("r", "stop")  # again, in the middle of it

    def decide(ctx: Any) -> Any:
        if ctx.cancellation_request is None:
            return stop(ctx)
        if not ctx.step_completed("clean"):
            return ctx.schedule_step("clean", clean)
        return ctx.cancel() if ctx.wait_completed("calm") else ctx.wait_until("calm", START + HOUR)

    redefine("stops", decide)
    dispatcher = engine.services.dispatcher
    if stop is STOPS["not driven yet"]:
        engine.services.dispatcher = None
    try:
        engine.start("stops", run_id="r")
    except FlowError:
        assert stop is STOPS["blocked"]
    engine.services.dispatcher = dispatcher
    assert engine.request_cancellation("r", "stop").status == "cancelling"
    assert engine.request_cancellation("r", "stop").status == "cancelling"
    clock.advance(HOUR)
    FlowScheduler(engine).tick()
    assert engine.request_cancellation("r", "stop").status == "cancelled"
    assert cleaned == [1]
    assert engine.store.row("r").blocked_code == ""


# --- replay ---------------------------------------------------------------------------------------------------------

OLD: dict[str, Callable[[Any], Any]] = {
    "step": lambda ctx: ctx.schedule_step("x", "fails", 1, retry=RetryPolicy.fixed(2, HOUR)),
    "timer": lambda ctx: ctx.wait_until("x", START + HOUR),
    "hook": lambda ctx: ctx.create_hook("x", "t", {"m": 1}, expires_at=START + HOUR),
}
NEW: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "other step": ("step", lambda ctx: ctx.schedule_step("x", "other", 1, retry=RetryPolicy.fixed(2, HOUR))),
    "other input": ("step", lambda ctx: ctx.schedule_step("x", "fails", 1.0, retry=RetryPolicy.fixed(2, HOUR))),
    "other retry": ("step", lambda ctx: ctx.schedule_step("x", "fails", 1, retry=RetryPolicy.fixed(3, HOUR))),
    "other time": ("timer", lambda ctx: ctx.wait_until("x", START + 2 * HOUR)),
    "other token": ("hook", lambda ctx: ctx.create_hook("x", "u", {"m": 1}, expires_at=START + HOUR)),
    "other metadata": ("hook", lambda ctx: ctx.create_hook("x", "t", {"m": 2}, expires_at=START + HOUR)),
    "other deadline": ("hook", lambda ctx: ctx.create_hook("x", "t", {"m": 1})),
}


@pytest.mark.parametrize(("old", "new"), NEW.values(), ids=NEW.keys())
def test_field_report_37_changed_code_parks_the_run_and_old_code_resumes_it(
    engine: FlowEngine, clock: FakeClock, old: str, new: Callable[[Any], Any]
) -> None:
    @step("fails")
    def fails(ctx: Any, data: Any) -> Any:
        if ctx.attempt == 1:
            raise ValueError
        return data

    step("other")(lambda data: data)

    def code(declare: Callable[[Any], Any]) -> Callable[[Any], Any]:
        def decide(ctx: Any) -> Any:
            over = ctx.step_completed("x") or ctx.wait_completed("x") or ctx.hook_expired("x")
            return ctx.complete("old code's end") if over else declare(ctx)

        return decide

    redefine("deployed", code(OLD[old]))
    engine.start("deployed", run_id="r")
    before = engine.history("r")
    redefine("deployed", code(new))
    with pytest.raises(NonDeterministicError, match="'x'"):
        engine.drive("r")
    assert engine.history("r") == before
    assert engine.store.row("r").blocked_code == "non_deterministic"
    redefine("deployed", code(OLD[old]))
    clock.advance(HOUR)
    FlowScheduler(engine).tick()
    assert engine.snapshot("r").output == "old code's end"
    assert engine.store.row("r").blocked_code == ""


@pytest.mark.parametrize("seed", range(5))
def test_field_report_38_ids_and_order_of_branches_do_not_depend_on_who_is_first(engine: FlowEngine, seed: int) -> None:
    chance = random.Random(seed)
    naps = {name: chance.random() / 50 for name in "abc"}

    @step("branch")
    def branch(name: str) -> str:
        time.sleep(naps[name])
        return name.upper()

    def decide(ctx: Any) -> Any:
        if not all(ctx.step_completed(name) for name in "abc"):
            return ctx.schedule_steps(ctx.step(name, branch, name) for name in "abc")
        if not ctx.hook_received("h"):
            return ctx.create_hook("h")
        return ctx.complete([ctx.step_output(name) for name in "abc"])

    redefine("branches", decide)
    engine.start("branches", run_id="r")
    inline_engine(engine.store).resume_hook("r", "h")
    assert engine.snapshot("r").output == ["A", "B", "C"]


# --- database, time and size ----------------------------------------------------------------------------------------


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("how", ["refused", "closed"])
def test_field_report_46a_a_lost_connection_does_not_lose_an_outcome(clock: FakeClock, how: str) -> None:
    if how == "closed" and connection.vendor == "sqlite":
        pytest.skip("SQLite has no server to lose")
    engine = inline_engine(DjangoEventStore(clock=clock))
    bodies: list[int] = []
    refusals = iter(range(30))

    def refuse(execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        if bodies and next(refusals, None) is not None:
            raise OperationalError("server closed the connection unexpectedly")
        return execute(sql, params, many, context)

    @step("pays")
    def pays() -> str:
        bodies.append(1)
        if how == "closed":
            connection.connection.close()
        return "receipt"

    redefine(
        "pays",
        lambda ctx: ctx.complete(ctx.step_output("s")) if ctx.step_completed("s") else ctx.schedule_step("s", pays),
    )
    if how == "refused":
        with connection.execute_wrapper(refuse):
            engine.start("pays", run_id="r")
    else:
        engine.start("pays", run_id="r")
    assert bodies == [1]
    assert engine.snapshot("r").output == "receipt"


INSTANTS = {
    "whole second": START + HOUR,
    "microseconds": START + timedelta(microseconds=123457),
    "now": START,
    "past": START - timedelta(days=400),
    "elsewhere": (START + HOUR).astimezone(timezone(-timedelta(hours=9, minutes=30))),
    "ten years": START.replace(year=2040),
    "almost the last": datetime.max.replace(tzinfo=UTC) - timedelta(days=1),
}


@pytest.mark.parametrize("at", INSTANTS.values(), ids=INSTANTS.keys())
def test_field_report_46d_a_timer_fires_at_its_instant_and_not_before(
    engine: FlowEngine, clock: FakeClock, at: datetime
) -> None:
    redefine("timed", lambda ctx: ctx.complete() if ctx.wait_completed("w") else ctx.wait_until("w", at))
    engine.start("timed", run_id="r")
    assert engine.snapshot("r").waits["w"].resume_at == at
    inline_engine(engine.store).drive("r")
    assert engine.store.row("r").wake_at == at
    if at > START:
        clock.move_to(at - timedelta(microseconds=1))
        assert not FlowScheduler(engine).tick().has_due_work
        clock.move_to(at)
    FlowScheduler(engine).tick()
    assert story(engine, "r") == "C S wc:w wk:w RC"


@pytest.mark.parametrize("back", [timedelta(seconds=1), HOUR])
def test_field_report_46e_a_clock_that_goes_back_fires_nothing_early(
    engine: FlowEngine, clock: FakeClock, back: timedelta
) -> None:
    redefine("timed", lambda ctx: ctx.complete() if ctx.wait_completed("w") else ctx.wait_until("w", START + MINUTE))
    engine.start("timed", run_id="r")
    clock.advance(MINUTE)
    clock.move_to(clock.now() - back)
    assert not FlowScheduler(engine).tick().has_due_work
    assert engine.resume_scheduled_run("r") == []
    clock.move_to(START + MINUTE)
    FlowScheduler(engine).tick()
    assert engine.snapshot("r").status == "completed"


def test_field_report_46i_ten_megabytes_are_refused_on_the_step_that_made_them(engine: FlowEngine) -> None:
    step("big", retry=RetryPolicy.none())(lambda: "x" * 10_000_000)
    redefine("big", lambda ctx: ctx.schedule_step("s", "big"))
    snapshot = engine.snapshot(engine.start("big"))
    assert snapshot.status == "failed"
    assert snapshot.error is not None
    assert "MAX_PAYLOAD" in snapshot.error


@pytest.mark.parametrize("result", [None, False, 0, "", []], ids=repr)
def test_field_report_47_an_empty_result_is_a_result(engine: FlowEngine, result: Any) -> None:
    step("empty")(lambda: result)
    redefine(
        "empty",
        lambda ctx: ctx.complete(ctx.step_output("s")) if ctx.step_completed("s") else ctx.schedule_step("s", "empty"),
    )
    snapshot = engine.snapshot(engine.start("empty"))
    assert snapshot.status == "completed"
    assert snapshot.output == result
    assert type(snapshot.output) is type(result)
