"""Values come back exactly, on the first pass and on replay, on every database; odd text is escaped, never fatal."""

from __future__ import annotations

import unicodedata
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest

from flow_app import ChildOperationReference, RetryPolicy, WorkflowProgress, step, workflow
from flow_app.core.ports import EventStore
from flow_app.engine import FlowEngine
from tests.engine.conftest import inline_engine


def nested(levels: int) -> Any:
    value: Any = -0.0
    for _ in range(levels):
        value = {"in": value}
    return value


VALUES: dict[str, Any] = {
    "none": None,
    "false": False,
    "zero": 0,
    "empty text": "",
    "empty list": [],
    "empty object": {},
    "nul": "a\x00b",
    "lone surrogates": "\ud800 and \udfff",
    "nul and surrogate as keys": {"\x00": "\x00", "\ud800": "\ud800"},
    "emoji": "🧾",
    "unnormalised": unicodedata.normalize("NFD", "é"),
    "negative zero": -0.0,
    "1e16": 1e16,
    "1e22": 1e22,
    "tiny": 5e-324,
    "one and one point nought": [1, 1.0, True],
    "2**80": 2**80,
    "2**53 + 1": 2**53 + 1,
    "many digits": 10**4000,
    "decimal": Decimal("1.10"),
    "decimal exponent": Decimal("1E+5"),
    "decimal negative zero": Decimal("-0.00"),
    "datetime": datetime(2030, 1, 2, 3, 4, 5, 678901, tzinfo=UTC),
    "datetime elsewhere": datetime(2030, 1, 2, 3, 4, 5, 1, tzinfo=timezone(timedelta(hours=5, minutes=30))),
    "last datetime": datetime.max.replace(tzinfo=UTC),
    "date": date(2030, 1, 2),
    "time": time(3, 4, 5, 6),
    "timedelta": timedelta(days=-1, microseconds=1),
    "uuid": UUID("12345678123456781234567812345678"),
    "bytes": b"\x00\xff",
    "tagged user data": [{"$decimal": "x"}, {"$$uuid": 1}, {"$": None}],
    "order of keys": {"b": 1, "aa": 2, "a": 3},
    "deep": nested(60),
    "long": "x" * 100_000,
}


def same(one: Any, other: Any) -> bool:
    """Equal in value, type, order of keys and sign of zero, all the way down."""
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return sorted(one) == list(other) and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(same, one, other))
    return repr(one) == repr(other)


@pytest.mark.parametrize("value", VALUES.values(), ids=VALUES.keys())
def test_a_value_is_the_same_everywhere_and_every_time(engine: FlowEngine, store: EventStore, value: Any) -> None:
    seen: list[Any] = []

    @step("echo")
    def echo(data: Any) -> Any:
        seen.append(data)
        return data

    @workflow("exact")
    def exact(ctx: Any) -> Any:
        seen.append(ctx.input)
        if not ctx.step_completed("s"):
            return ctx.schedule_step("s", echo, ctx.input)
        seen.append(ctx.step_output("s"))
        if ctx.progress("p") is None:
            return ctx.record_progress(WorkflowProgress("p", 1, details=value))
        seen.append(ctx.progress("p").details)
        if ctx.child_operation("c") is None:
            return ctx.link_child_operation(ChildOperationReference("c", "k", "o", metadata=value))
        seen.append(ctx.child_operation("c").metadata)
        if not ctx.hook_received("h"):
            return ctx.create_hook("h", "token", value)
        seen.append(ctx.hook_payload("h"))
        return ctx.complete(value)

    engine.start("exact", value, run_id="r")
    another = inline_engine(store)
    assert another.resume_hook("r", "h", value)
    assert not inline_engine(store).resume_hook("r", "h", value)
    snapshot = inline_engine(store).snapshot("r")
    seen += [snapshot.input, snapshot.output, snapshot.hooks["h"].metadata, snapshot.hooks["h"].payload]
    assert len(seen) > 15
    assert all(same(value, item) for item in seen)
    assert another.start("exact", value, run_id="r") == "r"


def test_a_tuple_is_a_list_from_the_first_pass_on(engine: FlowEngine) -> None:
    seen: list[Any] = []

    @workflow("tuples")
    def tuples(ctx: Any) -> Any:
        seen.append(ctx.input)
        return ctx.complete() if ctx.hook_received("h") else ctx.create_hook("h", "t")

    engine.start("tuples", (1, (2,)), run_id="r")
    engine.resume_hook("r", "h")
    assert seen == [[1, [2]]] * len(seen)


def test_what_workflow_code_changes_is_not_what_is_recorded(engine: FlowEngine) -> None:
    @workflow("careless")
    def careless(ctx: Any) -> Any:
        ctx.input.append(2)
        return ctx.complete(ctx.input)

    assert engine.snapshot(engine.start("careless", [1])).output == [1]


# --- free text ------------------------------------------------------------------------------------------------------

ODD = "nul \x00, surrogate \ud800, emoji 🧾"
ESCAPED = "nul \\x00, surrogate \\ud800, emoji 🧾"


def test_the_error_of_a_step_is_escaped(engine: FlowEngine) -> None:
    @step("fails", retry=RetryPolicy.none())
    def fails() -> None:
        raise ValueError(ODD + "x" * 100_000)

    @workflow("failing")
    def failing(ctx: Any) -> Any:
        return ctx.schedule_step("s", fails)

    snapshot = engine.snapshot(engine.start("failing"))
    assert snapshot.status == "failed"
    assert snapshot.error is not None
    assert snapshot.error.startswith(f"ValueError: {ESCAPED}")
    assert len(snapshot.error) == 4000


def test_an_exception_that_cannot_be_shown_is_a_failed_attempt(engine: FlowEngine) -> None:
    class Mute(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no words")

    @step("mute", retry=RetryPolicy.none())
    def mute() -> None:
        raise Mute

    @workflow("muted")
    def muted(ctx: Any) -> Any:
        return ctx.schedule_step("s", mute)

    snapshot = engine.snapshot(engine.start("muted"))
    assert snapshot.status == "failed"
    assert snapshot.error is not None
    assert "Mute" in snapshot.error


def test_the_error_of_a_workflow_is_escaped(engine: FlowEngine) -> None:
    @workflow("raises")
    def raises(ctx: Any) -> Any:
        raise ValueError(ODD)

    with pytest.raises(Exception, match="ValueError: nul"):
        engine.start("raises", run_id="r")
    assert ESCAPED in engine.store.row("r").blocked_text


@pytest.mark.parametrize("reason", [ODD, "", " ", "x" * 100_000], ids=["odd", "empty", "blank", "long"])
def test_a_reason_is_never_fatal_and_the_same_request_is_the_same(engine: FlowEngine, reason: str) -> None:
    @workflow("cleans")
    def cleans(ctx: Any) -> Any:
        if ctx.cancellation_request is None:
            return ctx.create_hook("h", "t")
        return ctx.cancel() if ctx.hook_received("clean") else ctx.create_hook("clean", "c")

    for run_id, act in {
        "forced": lambda: engine.force_cancel("forced", reason),
        "late": lambda: engine.terminate_for_timeout("late", datetime(2030, 1, 1, tzinfo=UTC), reason),
        "shut": lambda: engine.terminate_for_host_shutdown("shut", reason),
    }.items():
        engine.start("cleans", run_id=run_id)
        assert act()
        engine.snapshot(run_id)
        assert inline_engine(engine.store).snapshot(run_id).status.is_terminal

    engine.start("cleans", run_id="asked")
    engine.request_cancellation("asked", reason)
    engine.request_cancellation("asked", reason)
    engine.resume_hook("asked", "clean")
    outcome = engine.snapshot("asked").terminal_outcome
    assert outcome is not None
    assert outcome.reason in (reason, ESCAPED)


@pytest.mark.parametrize("text", [ODD, "x" * 100_000], ids=["odd", "long"])
def test_fail_with_odd_text(engine: FlowEngine, text: str) -> None:
    workflow("fails")(lambda ctx: ctx.fail(text))
    snapshot = engine.snapshot(engine.start("fails"))
    assert snapshot.status == "failed"
    assert snapshot.error in (text, ESCAPED)


def test_odd_text_in_labels_actor_and_token(engine: FlowEngine, store: EventStore) -> None:
    workflow("waits")(lambda ctx: ctx.complete() if ctx.hook_received("h") else ctx.create_hook("h", ODD))
    engine.start("waits", run_id="r", labels={"note": ODD}, actor=ODD)
    assert engine.resume_hook_by_token(ODD, actor=ODD) == ("r", "h")
    assert store.history("r")[0].meta["actor"] in (ODD, ESCAPED)
    assert engine.snapshot("r").status == "completed"
