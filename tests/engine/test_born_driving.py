"""A run that is driven by the very call that starts it: it is written with its first decision, under a lease."""

from __future__ import annotations

from typing import Any

import pytest
from django.db.utils import OperationalError

from flow_app.authoring.steps import step
from flow_app.authoring.workflows import workflow
from flow_app.core.policy import WorkflowProgress
from flow_app.engine import FlowEngine
from flow_app.errors import RunConflictError, RunNotFoundError, RuntimeFailureError, StoreError
from flow_app.store import DjangoEventStore
from tests.engine.conftest import inline_engine
from tests.engine.scenarios.support import names


@pytest.fixture
def creations(engine: FlowEngine, monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The events of each attempt to create a run."""
    seen: list[list[str]] = []
    create = engine.store.create

    def counted(run: Any, events: Any) -> Any:
        seen.append([type(new.event).__name__ for new in events])
        return create(run, events)

    monkeypatch.setattr(engine.store, "create", counted)
    return seen


def test_the_first_decision_is_written_with_the_run(engine: FlowEngine, creations: list[list[str]]) -> None:
    seen = []

    @step("s")
    def s(ctx):
        row = engine.store.row(ctx.run_id)
        seen.append((row.lease_epoch, row.lease_expires_at is not None, row.wake_reason))

    workflow("w")(lambda ctx: ctx.complete() if ctx.step_completed("s") else ctx.schedule_step("s", s))
    engine.start("w", run_id="r")
    assert creations == [["RunCreated", "RunStarted", "StepCreated", "StepStarted"]]
    assert seen == [(1, True, "driving")]
    row = engine.store.row("r")
    assert (row.status, row.lease_expires_at, row.wake_at) == ("completed", None, None)


def test_a_run_that_ends_at_once_is_one_append(engine: FlowEngine, creations: list[list[str]]) -> None:
    workflow("w")(lambda ctx: ctx.complete(7))
    engine.start("w", run_id="r")
    assert creations == [["RunCreated", "RunStarted", "RunCompleted"]]
    assert engine.snapshot("r").output == 7


def test_a_process_that_stops_before_the_first_decision_leaves_nothing(engine: FlowEngine) -> None:
    def stop(ctx):
        raise SystemExit

    workflow("w")(stop)
    with pytest.raises(SystemExit):
        engine.start("w", run_id="r")
    with pytest.raises(RunNotFoundError):
        engine.store.row("r")


def test_a_workflow_that_fails_at_once_leaves_a_blocked_run(engine: FlowEngine) -> None:
    workflow("w")(lambda ctx: 1 / 0)
    with pytest.raises(RuntimeFailureError, match="ZeroDivisionError"):
        engine.start("w", run_id="r")
    assert names(engine, "r") == "C S"
    row = engine.store.row("r")
    assert (row.blocked_code, row.lease_expires_at, row.blocked_count) == ("runtime", None, 1)


def test_workflow_code_that_needs_its_run_to_be_there_is_asked_again(engine: FlowEngine) -> None:
    def writes(ctx):
        engine.record_progress(ctx.run_id, WorkflowProgress("p", 1))
        return ctx.complete()

    workflow("w")(writes)
    engine.start("w", run_id="r")
    assert names(engine, "r") == "C S PG RC"


def test_a_taken_id_is_a_conflict_whatever_the_workflow_says_of_the_other_input(engine: FlowEngine) -> None:
    workflow("w")(lambda ctx: ctx.complete(1 / ctx.input))
    engine.start("w", 1, run_id="r")
    with pytest.raises(RunConflictError):
        engine.start("w", 0, run_id="r")
    engine.start("w", 1, run_id="r")
    assert names(engine, "r") == "C S RC"


def test_a_creation_that_committed_unnoticed_is_recognised(engine: FlowEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    """The connection broke after the commit: the repeated creation finds its own events, and the drive goes on."""
    create, lost = engine.store.create, []

    def lose_the_answer(run: Any, events: Any) -> Any:
        row = create(run, events)
        if not lost:
            lost.append(run.run_id)
            raise StoreError("the connection broke") from OperationalError("gone")
        return row

    monkeypatch.setattr(engine.store, "create", lose_the_answer)
    monkeypatch.setattr(engine.store.clock, "sleep", lambda seconds: None)
    calls = []
    step("s")(lambda: calls.append(1))
    workflow("w")(lambda ctx: ctx.complete() if ctx.step_completed("s") else ctx.schedule_step("s", "s"))
    engine.start("w", run_id="r")
    assert names(engine, "r") == "C S sc ss sk RC"
    assert (lost, calls) == (["r"], [1])


def test_a_step_that_starts_a_run_lets_it_be_driven_after_its_own(engine: FlowEngine) -> None:
    seen = []
    workflow("child")(lambda ctx: ctx.complete())

    @step("spawn")
    def spawn():
        seen.append(engine.store.row(engine.start("child", run_id="c")).status)

    workflow("parent")(lambda ctx: ctx.complete() if ctx.step_completed("s") else ctx.schedule_step("s", spawn))
    engine.start("parent", run_id="p")
    assert seen == ["running"]
    assert engine.store.row("c").status == "completed"


@pytest.mark.django_db(transaction=True)
def test_starting_what_is_there_does_not_read_its_history(monkeypatch: pytest.MonkeyPatch) -> None:
    """It may be long, and only its first event says whether this is the same run."""
    engine = inline_engine(DjangoEventStore())
    workflow("w")(lambda ctx: ctx.complete())
    engine.start("w", run_id="r")

    def whole(run_id: str, **after: Any) -> Any:
        raise AssertionError("the whole history was read")

    monkeypatch.setattr(engine.store, "history", whole)
    assert engine.start("w", run_id="r") == "r"
    with pytest.raises(RunConflictError):
        engine.start("w", 1, run_id="r")
