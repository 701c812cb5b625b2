"""Tracebacks are kept beside the events of a failed attempt, and on the row of a blocked run; they decide nothing."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from flow_app import RetryPolicy, step, workflow
from flow_app.conf import Options
from flow_app.core.events import EventEnvelope
from flow_app.core.ports import EventStore
from flow_app.engine import FlowEngine
from flow_app.errors import NonDeterministicError, RuntimeFailureError
from flow_app.models import Run
from flow_app.store import DjangoEventStore
from tests.engine.conftest import inline_engine
from tests.engine.logbook import alone, story

NONE: dict[str, Any] = {}


def tracebacks(engine: FlowEngine, run_id: str = "r1") -> dict[str, list[str]]:
    """Those of a run, by type of event; every event that has none is left out."""
    found: dict[str, list[str]] = {}
    for envelope in engine.history(run_id):
        if text := envelope.meta.get("traceback"):
            found.setdefault(envelope.type, []).append(text)
    return found


def price_of(name: str) -> int:
    return {"tea": 3}[name]


@pytest.fixture
def looks_up() -> None:
    """Workflow ``w``: a step that fails in what it calls, twice."""

    @step("look-up", retry=RetryPolicy.fixed(2))
    def look_up(name: str) -> int:
        return price_of(name)

    alone(look_up, "coffee")


@pytest.mark.usefixtures("looks_up")
def test_each_failed_attempt_has_one_and_nothing_else_does(engine: FlowEngine) -> None:
    engine.start("w", run_id="r1")
    assert story(engine) == "C S sc:s ss:s#1 sr:s#1 ss:s#2 sf:s#2 RE:s#2"
    found = tracebacks(engine)
    assert list(found) == ["step_retrying", "step_failed", "run_retry_exhausted"]
    (text,) = found["step_failed"]
    assert text.startswith("Traceback (most recent call last):\n  File ")
    assert "in look_up\n    return price_of(name)\n" in text
    assert "in price_of\n" in text
    assert text.endswith("KeyError: 'coffee'\n")
    assert found["run_retry_exhausted"] == found["step_failed"]


@pytest.mark.usefixtures("looks_up")
def test_the_frames_that_call_the_body_are_left_out(engine: FlowEngine) -> None:
    engine.start("w", run_id="r1")
    (text,) = tracebacks(engine)["step_failed"]
    assert "run_body" not in text
    assert text.count("  File ") == 2


@pytest.mark.usefixtures("looks_up")
def test_events_digests_and_replay_know_nothing_of_it(store: EventStore, engine: FlowEngine) -> None:
    """With and without, the log is the same but for the meta; a copy of it says and does the same."""
    engine.start("w", run_id="r1")
    without = inline_engine(store, options=Options(tracebacks=False))
    without.start("w", run_id="r2")
    assert tracebacks(without, "r2") == NONE
    one, other = engine.history("r1"), without.history("r2")
    assert [item.event for item in one] == [item.event for item in other]
    assert [item.to_wire()["event"] for item in one] == [item.to_wire()["event"] for item in other]

    wires = [item.to_wire() | {"run_id": "copy"} for item in one]
    engine.import_run([EventEnvelope.from_wire(wire) for wire in wires])
    assert [item.to_wire() for item in engine.history("copy")] == wires
    assert (engine.snapshot("copy").status, engine.snapshot("copy").error) == ("failed", engine.snapshot("r1").error)

    for wire in wires:
        wire.pop("meta", None)
        wire["run_id"] = "bare"
    engine.import_run([EventEnvelope.from_wire(wire) for wire in wires])
    assert engine.snapshot("bare").steps == engine.snapshot("r1").steps


def test_a_run_with_tracebacks_is_driven_on(store: EventStore, engine: FlowEngine) -> None:
    """Replay goes past them, in another process too."""

    @step("late", retry=RetryPolicy.fixed(2, timedelta(hours=1)))
    def late(ctx: Any) -> str:
        if ctx.attempt == 1:
            raise TimeoutError("not yet")
        return "at last"

    alone(late)
    engine.start("w", run_id="r1")
    store.clock.advance(timedelta(hours=1))  # type: ignore[attr-defined]
    other = inline_engine(store)
    other.resume_scheduled_run("r1")
    assert story(other) == "C S sc:s ss:s#1 sr:s#1 ss:s#2 sk:s RC"
    assert list(tracebacks(other)) == ["step_retrying"]


def test_members_of_a_batch_each_have_their_own(engine: FlowEngine) -> None:
    @step("fails", retry=RetryPolicy.none().continue_workflow_on_failure())
    def fails(which: str) -> None:
        raise ValueError(f"member {which}")

    @workflow("batch")
    def batch(ctx: Any) -> Any:
        if not ctx.step_failed("b"):
            return ctx.schedule_steps([ctx.step(name, "fails", name) for name in ("a", "b")])
        return ctx.complete()

    engine.start("batch", run_id="r1")
    found = tracebacks(engine)["step_failed"]
    assert sorted(text.splitlines()[-1] for text in found) == ["ValueError: member a", "ValueError: member b"]


@pytest.mark.parametrize(
    "error", [ValueError("a\x00\ud800\U0001f525"), ValueError("x" * 1_000_000)], ids=["odd", "long"]
)
def test_whatever_the_message_is_the_attempt_has_its_outcome(engine: FlowEngine, error: Exception) -> None:
    @step("odd", retry=RetryPolicy.none())
    def odd() -> None:
        raise error

    alone(odd)
    engine.start("w", run_id="r1")
    (text,) = tracebacks(engine)["step_failed"]
    assert "in odd\n" in text
    assert len(text) <= 16_000


def test_one_that_cannot_be_printed_leaves_the_outcome_as_it_is(engine: FlowEngine) -> None:
    class Hostile(Exception):
        @property
        def __cause__(self) -> Any:
            raise RuntimeError("no causes")

    @step("hostile", retry=RetryPolicy.none())
    def hostile() -> None:
        raise Hostile("ouch")

    alone(hostile)
    engine.start("w", run_id="r1")
    assert engine.snapshot("r1").error == "Hostile: ouch"
    assert tracebacks(engine) == NONE


def test_what_is_no_exception_of_a_body_has_none(engine: FlowEngine) -> None:
    """An output that cannot be stored: the error says it all."""

    @step("odd", retry=RetryPolicy.none())
    def odd() -> object:
        return object()

    alone(odd)
    engine.start("w", run_id="r1")
    assert engine.snapshot("r1").error.startswith("PayloadError: ")  # type: ignore[union-attr]
    assert tracebacks(engine) == NONE


def test_an_outcome_that_another_writer_came_before_keeps_it(engine: FlowEngine) -> None:
    @step("fails", retry=RetryPolicy.none())
    def fails() -> None:
        engine.resume_hook("r1", "h", {})  # the drive's next append conflicts
        raise ValueError("after the answer")

    @workflow("w")
    def w(ctx: Any) -> Any:
        return ctx.schedule_step("s", fails) if ctx.hook_created("h") else ctx.create_hook("h")

    engine.start("w", run_id="r1")
    assert story(engine) == "C S hc:h sc:s ss:s#1 hr:h sf:s#1 RE:s#1"
    assert "in fails\n" in tracebacks(engine)["run_retry_exhausted"][0]


# --- a blocked run ----------------------------------------------------------------------------------------------------


@pytest.fixture
def blocked(clock: Any) -> FlowEngine:
    """Workflow ``w`` raises until its code is mended."""
    return inline_engine(DjangoEventStore(clock=clock))


def kept(run_id: str = "r1") -> str:
    return Run.objects.with_id(run_id).get().blocked_traceback


def stop(engine: FlowEngine, code: Any, error: type[Exception] = RuntimeFailureError) -> None:
    """Have a run of ``w`` stopped by its code."""
    workflow("w")(code)
    with pytest.raises(error):
        engine.start("w", run_id="r1")


def asks_for_a_price(ctx: Any) -> Any:
    return ctx.complete(price_of("coffee\x00"))


@pytest.mark.django_db(transaction=True)
def test_what_blocks_a_run_is_on_its_row(blocked: FlowEngine) -> None:
    stop(blocked, asks_for_a_price)
    text = kept()
    assert "in asks_for_a_price\n" in text
    assert "in price_of\n" in text
    assert text.endswith("KeyError: 'coffee\\x00'\n")
    assert text.count("  File ") == 2


@pytest.mark.django_db(transaction=True)
def test_it_goes_when_the_run_moves_on_or_ends(blocked: FlowEngine) -> None:
    stop(blocked, asks_for_a_price)
    blocked.force_cancel("r1")
    assert kept() == ""
    with pytest.raises(RuntimeFailureError):
        blocked.start("w", run_id="r2")
    assert kept("r2")
    blocked.services.runtime.run_workflow = lambda ctx: ctx.complete()  # type: ignore[method-assign]
    blocked.run_now("r2")
    assert (blocked.snapshot("r2").status, kept("r2")) == ("completed", "")


@pytest.mark.django_db(transaction=True)
def test_an_error_of_the_engines_own_takes_its_place(blocked: FlowEngine) -> None:
    """Non-determinism is seen between two calls of the code: there is no line to point at."""
    stop(blocked, asks_for_a_price)
    blocked.services.runtime.run_workflow = lambda ctx: ctx.create_hook("h", metadata=1)  # type: ignore[method-assign]
    blocked.drive("r1")
    blocked.services.runtime.run_workflow = asks_for_a_price  # type: ignore[method-assign]
    with pytest.raises(RuntimeFailureError):
        blocked.drive("r1")
    assert kept()
    blocked.services.runtime.run_workflow = lambda ctx: ctx.create_hook("h", metadata=2)  # type: ignore[method-assign]
    with pytest.raises(NonDeterministicError):
        blocked.drive("r1")
    assert kept() == ""


@pytest.mark.django_db(transaction=True)
def test_switched_off_nothing_is_kept(clock: Any) -> None:
    engine = inline_engine(DjangoEventStore(clock=clock), options=Options(tracebacks=False))
    stop(engine, asks_for_a_price)
    assert kept() == ""
    assert engine.row("r1").blocked_text


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("looks_up")
def test_who_drives_a_run_and_who_lists_runs_reads_none(clock: Any) -> None:
    engine = inline_engine(DjangoEventStore(clock=clock))
    with CaptureQueriesContext(connection) as seen:
        engine.start("w", run_id="r1")
        engine.row("r1")
        engine.snapshot("r1")
        list(engine.store.rows())
        engine.drive("r1")
        list(Run.objects.all())
    reads = [query["sql"] for query in seen if query["sql"].startswith("SELECT")]
    assert reads
    assert [sql for sql in reads if "blocked_traceback" in sql] == []


def test_a_workflow_reads_the_same_history_before_it_is_committed_and_after(store, clock):
    """What is kept beside an event is there on the first pass as on every replay, or code that reads it may differ."""
    engine, seen = inline_engine(store), []

    @step("fails", retry=RetryPolicy.none().continue_workflow_on_failure())
    def fails() -> None:
        raise ValueError("no")

    @workflow("reader")
    def reader(ctx: Any) -> Any:
        if not ctx.step_failed("s"):
            return ctx.schedule_step("s", fails)
        seen.append([(item.sequence, item.type, dict(item.meta)) for item in ctx.history])
        return ctx.complete() if ctx.wait_completed("w") else ctx.wait_until("w", clock.now())

    engine.start(reader, run_id="r")
    engine.resume_wait("r", "w")
    assert any("traceback" in meta for _, _, meta in seen[0])
    assert len(seen) > 1
    assert all(later[: len(seen[0])] == seen[0] for later in seen)
