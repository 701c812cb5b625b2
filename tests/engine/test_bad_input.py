"""What cannot be stored or compared is refused with a typed error, before anything of it is written."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from enum import Enum
from typing import Any

import pytest
from django.contrib.auth.models import User

from flow_app import (
    ChildOperationReference,
    RetryPolicy,
    WorkflowProgress,
    step,
    workflow,
)
from flow_app.core.ports import EventStore
from flow_app.engine import FlowEngine
from flow_app.errors import (
    InvalidRunIdError,
    InvalidTransitionError,
    PayloadError,
    RunNotFoundError,
)
from flow_app.store import DjangoEventStore, InMemoryEventStore
from flow_app.testing import FakeClock
from tests.engine.refusals import blocked, refused, waiting_run

LONG_AGO = datetime(2000, 1, 1)
FAR = datetime(9999, 12, 31, 23, 59, tzinfo=timezone(-timedelta(hours=5)))


class Colour(Enum):
    RED = "red"


@dataclasses.dataclass
class Point:
    x: int = 1


def cycle() -> list[Any]:
    items: list[Any] = []
    items.append({"again": items})
    return items


def nested(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


BAD: dict[str, Callable[[], Any]] = {
    "nan": lambda: math.nan,
    "infinity": lambda: {"a": [math.inf]},
    "negative infinity": lambda: -math.inf,
    "set": lambda: {"a": {1}},
    "frozenset": lambda: frozenset(),
    "integer key": lambda: {"a": {1: 2}},
    "none key": lambda: {None: 2},
    "bytes key": lambda: {b"a": 2},
    "cycle": cycle,
    "object": lambda: [object()],
    "model instance": lambda: {"user": [User(username="ann")]},
    "queryset": lambda: User.objects.none(),
    "naive datetime": lambda: {"at": LONG_AGO},
    "decimal nan": lambda: Decimal("NaN"),
    "too deep": lambda: nested(65),
    "far too deep": lambda: nested(5000),
    "too large": lambda: "x" * (1024 * 1024),
    "too large when escaped": lambda: "\x00" * 200_000,
    "endless integer": lambda: 10**5000,
    "complex": lambda: 1j,
    "bytearray": lambda: bytearray(b"a"),
    "enum": lambda: Colour.RED,
    "dataclass": lambda: Point(),
    "generator": lambda: (item for item in "a"),
    "function": lambda: print,
    "type": lambda: int,
}
each_bad_value = pytest.mark.parametrize("make", BAD.values(), ids=BAD.keys())


@pytest.fixture(params=["memory", pytest.param("django", marks=pytest.mark.django_db)])
def store(request: pytest.FixtureRequest, clock: FakeClock) -> EventStore:
    """Undone after each test, which is faster than emptied."""
    return InMemoryEventStore(clock=clock) if request.param == "memory" else DjangoEventStore(clock=clock)


# --- values ---------------------------------------------------------------------------------------------------------


@each_bad_value
def test_a_bad_run_input(engine: FlowEngine, make: Callable[[], Any]) -> None:
    workflow("plain")(lambda ctx: ctx.complete())
    error = refused(engine, PayloadError, lambda: engine.start("plain", make(), run_id="r"))
    assert "$" in str(error)
    assert "run input" in str(error)


@each_bad_value
def test_a_bad_hook_payload(engine: FlowEngine, make: Callable[[], Any]) -> None:
    waiting_run(engine)
    refused(engine, PayloadError, lambda: engine.resume_hook("r", "h", make()))
    refused(engine, PayloadError, lambda: engine.resume_hook_by_token("t", make()))


@each_bad_value
def test_bad_details_and_metadata_from_the_host(engine: FlowEngine, make: Callable[[], Any]) -> None:
    waiting_run(engine)
    refused(engine, PayloadError, lambda: engine.record_progress("r", WorkflowProgress("p", 1, details=make())))
    child = ChildOperationReference("c", "task", "t1", metadata=make())
    refused(engine, PayloadError, lambda: engine.link_child_operation("r", child))


@each_bad_value
def test_a_bad_step_output_fails_the_step_and_not_the_bookkeeping(engine: FlowEngine, make: Callable[[], Any]) -> None:
    step("bad", retry=RetryPolicy(max_attempts=2).continue_workflow_on_failure())(lambda: make())

    @workflow("caught")
    def caught(ctx: Any) -> Any:
        error = ctx.step_failed("s")
        return ctx.schedule_step("s", "bad") if error is None else ctx.complete(error)

    snapshot = engine.snapshot(engine.start("caught"))
    assert snapshot.output.startswith("PayloadError: ")
    assert "output of step 's'" in snapshot.output
    assert snapshot.steps["s"].attempt == 2


COMMANDS: dict[str, Callable[[Any, Any], Any]] = {
    "output": lambda ctx, bad: ctx.complete(bad),
    "step input": lambda ctx, bad: ctx.schedule_step("s", "known", bad),
    "batch input": lambda ctx, bad: ctx.schedule_steps([ctx.step("a", "known", 1), ctx.step("b", "known", bad)]),
    "hook metadata": lambda ctx, bad: ctx.create_hook("h", "t", bad),
    "progress details": lambda ctx, bad: ctx.record_progress(WorkflowProgress("p", 1, details=bad)),
    "child metadata": lambda ctx, bad: ctx.link_child_operation(ChildOperationReference("c", "k", "o", metadata=bad)),
}


@pytest.mark.parametrize("ask", COMMANDS.values(), ids=COMMANDS.keys())
@each_bad_value
def test_a_bad_value_in_a_command(engine: FlowEngine, ask: Callable[[Any, Any], Any], make: Callable[[], Any]) -> None:
    step("known")(lambda data: data)
    blocked(engine, PayloadError, lambda ctx: ask(ctx, make()))


# --- ids and names --------------------------------------------------------------------------------------------------

BAD_IDS = ["", " ", "\t", "a\nb", "\x00", "\x7f", "a" * 201, "\ud800", 5, None, b"a", ["a"]]
each_bad_id = pytest.mark.parametrize("bad", BAD_IDS, ids=ascii)


@pytest.mark.parametrize("bad", ["", " ", "a b", "-a", ".a", "é", "a" * 129, "a/b", "a\n", "\x00", 5, b"a"], ids=ascii)
def test_a_bad_run_id(engine: FlowEngine, bad: Any) -> None:
    workflow("plain")(lambda ctx: ctx.complete())
    refused(engine, InvalidRunIdError, lambda: engine.start("plain", run_id=bad))
    refused(engine, InvalidRunIdError, lambda: engine.start_with_id(bad, "plain"))


ID_COMMANDS: dict[str, Callable[[Any, Any], Any]] = {
    "step id": lambda ctx, bad: ctx.schedule_step(bad, "known", 1),
    "batch id": lambda ctx, bad: ctx.schedule_steps([ctx.step("a", "known"), ctx.step(bad, "known")]),
    "wait id": lambda ctx, bad: ctx.wait_until(bad, datetime(2031, 1, 1, tzinfo=UTC)),
    "hook id": lambda ctx, bad: ctx.create_hook(bad, "t"),
    "hook id, derived token": lambda ctx, bad: ctx.create_hook(bad),
    "progress id": lambda ctx, bad: ctx.record_progress(WorkflowProgress(bad, 1)),
    "reference id": lambda ctx, bad: ctx.link_child_operation(ChildOperationReference(bad, "k", "o")),
    "child kind": lambda ctx, bad: ctx.link_child_operation(ChildOperationReference("c", bad, "o")),
    "operation id": lambda ctx, bad: ctx.link_child_operation(ChildOperationReference("c", "k", bad)),
}


@pytest.mark.parametrize("ask", ID_COMMANDS.values(), ids=ID_COMMANDS.keys())
@each_bad_id
def test_a_bad_id_in_a_command(engine: FlowEngine, ask: Callable[[Any, Any], Any], bad: Any) -> None:
    step("known")(lambda data: data)
    blocked(engine, InvalidTransitionError, lambda ctx: ask(ctx, bad))


@each_bad_id
def test_a_bad_id_from_the_host(engine: FlowEngine, bad: Any) -> None:
    waiting_run(engine)
    for act in (
        lambda: engine.record_progress("r", WorkflowProgress(bad, 1)),
        lambda: engine.link_child_operation("r", ChildOperationReference(bad, "k", "o")),
        lambda: engine.link_child_operation("r", ChildOperationReference("c", bad, "o")),
        lambda: engine.link_child_operation("r", ChildOperationReference("c", "k", bad)),
        lambda: engine.resume_wait("r", bad),
        lambda: engine.resume_hook("r", bad, 1),
        lambda: engine.dispose_hook("r", bad),
    ):
        refused(engine, InvalidTransitionError, act)


@pytest.mark.parametrize("names", [["a", "a"], []], ids=["twice", "empty"])
def test_a_bad_batch(engine: FlowEngine, names: list[str]) -> None:
    step("known")(lambda: None)
    blocked(engine, InvalidTransitionError, lambda ctx: ctx.schedule_steps(ctx.step(name, "known") for name in names))


@pytest.mark.parametrize("bad", ["", " ", 5, b"t"], ids=repr)
def test_a_bad_token(engine: FlowEngine, bad: Any) -> None:
    waiting_run(engine)
    refused(engine, InvalidTransitionError, lambda: engine.resume_hook_by_token(bad, 1))
    refused(engine, InvalidTransitionError, lambda: engine.dispose_hook_by_token(bad))
    engine.force_cancel("r")
    blocked(engine, InvalidTransitionError, lambda ctx: ctx.create_hook("h", bad))


# --- instants and numbers -------------------------------------------------------------------------------------------

BAD_INSTANTS = [LONG_AGO, FAR, datetime.max, "2031-01-01T00:00:00Z", 5, None, timedelta(1)]


@pytest.mark.parametrize("bad", BAD_INSTANTS, ids=str)
def test_a_bad_instant(engine: FlowEngine, bad: Any) -> None:
    waiting_run(engine)
    refused(engine, InvalidTransitionError, lambda: engine.terminate_for_timeout("r", bad))
    engine.force_cancel("r")
    blocked(engine, InvalidTransitionError, lambda ctx: ctx.wait_until("w", bad))


@pytest.mark.parametrize("bad", BAD_INSTANTS, ids=str)
def test_a_bad_deadline(engine: FlowEngine, bad: Any) -> None:
    blocked(engine, InvalidTransitionError, lambda ctx: ctx.timeout(bad))


@pytest.mark.parametrize("bad", [item for item in BAD_INSTANTS if item is not None], ids=str)
def test_a_bad_expiry(engine: FlowEngine, bad: Any) -> None:
    blocked(engine, InvalidTransitionError, lambda ctx: ctx.create_hook("h", "t", expires_at=bad))


@pytest.mark.parametrize("delay_ms", [2**64 - 1, 8_000 * 366 * 86_400_000])
def test_a_delay_past_the_calendar(engine: FlowEngine, delay_ms: int) -> None:
    step("known")(lambda: None)
    retry = RetryPolicy(max_attempts=2, delay_ms=delay_ms)
    blocked(engine, InvalidTransitionError, lambda ctx: ctx.schedule_step("s", "known", retry=retry))


@pytest.mark.parametrize("now", [LONG_AGO, "now", 5], ids=str)
def test_a_bad_now(engine: FlowEngine, now: Any) -> None:
    waiting_run(engine)
    for act in (
        lambda: engine.resume_scheduled_run("r", now),
        lambda: engine.resume_due_waits(now),
        lambda: engine.resume_due_retries(now),
        lambda: engine.list_due_waits(now),
        lambda: engine.list_open_suspensions(now),
    ):
        refused(engine, InvalidTransitionError, act)


BAD_PROGRESS = [
    WorkflowProgress("p", -1),
    WorkflowProgress("p", 1.5),  # type: ignore[arg-type]
    WorkflowProgress("p", True),
    WorkflowProgress("p", 2**64),
    WorkflowProgress("p", 1, 0),
    WorkflowProgress("p", 2, 1),
    WorkflowProgress("p", 1, message=5),  # type: ignore[arg-type]
]


@pytest.mark.parametrize("bad", BAD_PROGRESS, ids=str)
def test_bad_progress(engine: FlowEngine, bad: WorkflowProgress) -> None:
    waiting_run(engine)
    refused(engine, InvalidTransitionError, lambda: engine.record_progress("r", bad))
    engine.force_cancel("r")
    blocked(engine, InvalidTransitionError, lambda ctx: ctx.record_progress(bad))


def test_progress_as_large_as_it_may_be_is_kept(engine: FlowEngine) -> None:
    waiting_run(engine)
    top = WorkflowProgress("p", 2**64 - 1, 2**64 - 1, message="\x00\ud800" + "x" * 5000)
    assert engine.record_progress("r", top)
    assert engine.snapshot("r").latest_progress == top
    assert not engine.record_progress("r", top)


# --- things that are not what they should be -------------------------------------------------------------------------


@pytest.mark.parametrize("item", [None, {"progress_id": "p", "completed": 1}, "p"], ids=repr)
def test_progress_and_children_that_are_none(engine: FlowEngine, item: Any) -> None:
    waiting_run(engine)
    error = refused(engine, InvalidTransitionError, lambda: engine.record_progress("r", item))
    assert "must be a WorkflowProgress" in str(error)
    error = refused(engine, InvalidTransitionError, lambda: engine.link_child_operation("r", item))
    assert "must be a ChildOperationReference" in str(error)


@pytest.mark.parametrize(
    "decide",
    [
        lambda ctx: ctx.record_progress({"progress_id": "p"}),
        lambda ctx: ctx.link_child_operation(None),
        lambda ctx: ctx.schedule_step("s", nested),
        lambda ctx: ctx.schedule_steps([ctx.step("s", nested)]),
        lambda ctx: ctx.schedule_steps(["s"]),
        lambda ctx: ctx.schedule_steps(None),
    ],
)
def test_commands_of_things_that_are_none(engine: FlowEngine, decide: Callable[[Any], Any]) -> None:
    blocked(engine, InvalidTransitionError, decide)


@pytest.mark.parametrize("history", [None, 5, [{}], ["run_created"], [None]], ids=repr)
def test_a_history_that_is_none(engine: FlowEngine, history: Any) -> None:
    waiting_run(engine)
    refused(engine, InvalidTransitionError, lambda: engine.import_run(history))


@pytest.mark.parametrize("run_id", [None, 5, "", "no such run"])
def test_a_run_id_that_is_none(engine: FlowEngine, run_id: Any) -> None:
    waiting_run(engine)
    for read in (engine.snapshot, engine.row, engine.history, engine.drive):
        refused(engine, RunNotFoundError, lambda read=read: read(run_id))  # type: ignore[misc]
