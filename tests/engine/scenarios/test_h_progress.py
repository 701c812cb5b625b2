"""Scenarios 77 to 83: progress and child references; and who is told of events."""

from __future__ import annotations

import logging

import pytest
from django.db import connections, transaction

from flow_app import ChildOperationReference, WorkflowProgress, step, workflow
from flow_app.core import commands as cmd
from flow_app.errors import (
    ChildOperationConflictError,
    InvalidTransitionError,
    NonDeterministicError,
    PayloadError,
    ProgressConflictError,
    RunNotFoundError,
    RunTerminalError,
)
from flow_app.signals import event_recorded
from tests.engine.scenarios.support import Crowd, engine_on, imported, names, redefine, restarted

PROGRESS = WorkflowProgress("imported", 3, 10, "three of ten", {"file": "a.csv"})
CHILD = ChildOperationReference("export", "celery", "task-77", metadata={"queue": "slow"})


@pytest.fixture
def waiting():
    @workflow("waiting")
    def waiting(ctx):
        return ctx.complete() if ctx.hook_received("h") else ctx.create_hook("h")

    return waiting


def test_scenario_077_the_same_twice(engine, waiting):
    engine.start(waiting, run_id="r")
    assert engine.record_progress("r", PROGRESS, actor="ann") is True
    assert engine.link_child_operation("r", CHILD) is True
    assert engine.record_progress("r", PROGRESS) is False
    assert engine.link_child_operation("r", CHILD) is False
    assert names(engine, "r") == "C S hc PG CH"
    assert engine.history("r")[3].meta == {"actor": "ann"}

    run = restarted(engine).snapshot("r")
    assert run.progress == (PROGRESS,)
    assert run.latest_progress == PROGRESS
    assert run.child_operations == {"export": CHILD}
    assert run.status == "suspended"


def test_scenario_078_another_content_is_a_conflict_of_its_own(engine, waiting):
    engine.start(waiting, run_id="r")
    engine.record_progress("r", PROGRESS)
    engine.link_child_operation("r", CHILD)
    for other in (
        WorkflowProgress("imported", 4, 10, "three of ten", {"file": "a.csv"}),
        WorkflowProgress("imported", 3),
        WorkflowProgress("imported", 3, 10, "three of ten", {"file": "b.csv"}),
    ):
        with pytest.raises(ProgressConflictError) as caught:
            engine.record_progress("r", other)
        assert (caught.value.run_id, caught.value.progress_id) == ("r", "imported")
    with pytest.raises(ChildOperationConflictError) as caught:
        engine.link_child_operation("r", ChildOperationReference("export", "celery", "task-78"))
    assert (caught.value.run_id, caught.value.reference_id) == ("r", "export")
    assert names(engine, "r") == "C S hc PG CH"


def test_scenario_078_several_entries_in_order(engine, waiting):
    engine.start(waiting, run_id="r")
    for at in (2, 1, 3):
        engine.record_progress("r", WorkflowProgress(f"p{at}", at))
    assert [item.progress_id for item in engine.snapshot("r").progress] == ["p2", "p1", "p3"]


def test_scenario_078_recorded_while_cancelling_and_while_pending(engine):
    @workflow("w")
    def w(ctx):
        return ctx.create_hook("cleanup") if ctx.cancellation_request else ctx.create_hook("h")

    imported(engine, "pending")
    assert engine.record_progress("pending", PROGRESS) is True
    assert names(engine, "pending") == "C PG"
    engine.start(w, run_id="cancelling")
    engine.request_cancellation("cancelling")
    assert engine.link_child_operation("cancelling", CHILD) is True
    assert names(engine, "cancelling") == "C S hc CR hc CH"


def test_scenario_079_from_workflow_code(engine):
    @workflow("w")
    def w(ctx):
        if ctx.progress("imported") is None:
            return ctx.record_progress(PROGRESS)
        if ctx.child_operation("export") is None:
            return ctx.link_child_operation(CHILD)
        return ctx.complete([ctx.progress("imported").completed, ctx.child_operation("export").operation_id])

    engine.start(w, run_id="r")
    assert names(engine, "r") == "C S PG CH RC"
    assert engine.snapshot("r").output == [3, "task-77"]


@pytest.mark.parametrize(
    ("act", "other"),
    [
        (lambda ctx: ctx.record_progress(PROGRESS), lambda ctx: ctx.record_progress(WorkflowProgress("imported", 4))),
        (
            lambda ctx: ctx.link_child_operation(CHILD),
            lambda ctx: ctx.link_child_operation(ChildOperationReference("export", "celery", "task-78")),
        ),
    ],
)
def test_scenario_079_again_is_no_forward_progress(engine, act, other):
    @workflow("w")
    def w(ctx):
        return act(ctx)

    with pytest.raises(InvalidTransitionError, match="no forward progress"):
        engine.start(w, run_id="r")
    assert len(engine.history("r")) == 3
    redefine("w", other)
    with pytest.raises(NonDeterministicError):
        engine.drive("r")
    assert len(engine.history("r")) == 3


@pytest.mark.parametrize("blank", ["", " ", "\t"])
def test_scenario_080_blank_ids(engine, waiting, blank):
    engine.start(waiting, run_id="r")
    with pytest.raises(InvalidTransitionError):
        engine.record_progress("r", WorkflowProgress(blank, 1))
    for child in (
        ChildOperationReference(blank, "k", "o"),
        ChildOperationReference("c", blank, "o"),
        ChildOperationReference("c", "k", blank),
        ChildOperationReference("c", "k", "o", flow_run_id=blank),
    ):
        with pytest.raises(InvalidTransitionError):
            engine.link_child_operation("r", child)
    assert names(engine, "r") == "C S hc"


@pytest.mark.parametrize(
    ("completed", "total"),
    [(1, 0), (2, 1), (-1, None), (1.5, None), (True, None), (2**64, None), (1, 2**64), ("1", None), (None, None)],
)
def test_scenario_080_numbers_out_of_range(engine, waiting, completed, total):
    engine.start(waiting, run_id="r")
    with pytest.raises(InvalidTransitionError):
        engine.record_progress("r", WorkflowProgress("p", completed, total))

    @workflow("w")
    def w(ctx):
        return ctx.record_progress(WorkflowProgress("p", completed, total))

    with pytest.raises(InvalidTransitionError):
        engine.start(w, run_id="s")
    assert names(engine, "r") == "C S hc"
    assert names(engine, "s") == "C S"


def test_scenario_080_details_that_cannot_be_stored(engine, waiting):
    engine.start(waiting, run_id="r")
    with pytest.raises(PayloadError):
        engine.record_progress("r", WorkflowProgress("p", 1, details={"x": {1}}))
    with pytest.raises(PayloadError):
        engine.link_child_operation("r", ChildOperationReference("c", "k", "o", metadata=object()))
    assert names(engine, "r") == "C S hc"


def test_scenario_080_the_largest_numbers_hold(engine, waiting):
    engine.start(waiting, run_id="r")
    progress = WorkflowProgress("p", 2**64 - 1, 2**64 - 1)
    engine.record_progress("r", progress)
    assert engine.snapshot("r").latest_progress == progress


def test_scenario_081_a_link_to_another_run(engine, waiting):
    engine.start(waiting, run_id="parent")
    engine.start(waiting, run_id="child")
    linked = ChildOperationReference("c", "flow", "child", flow_run_id="child")
    assert engine.link_child_operation("parent", linked) is True
    with pytest.raises(RunNotFoundError) as caught:
        engine.link_child_operation("parent", ChildOperationReference("d", "flow", "x", flow_run_id="nobody"))
    assert caught.value.run_id == "nobody"
    engine.force_cancel("parent")
    assert engine.snapshot("child").status == "suspended"  # never driven nor cancelled with its parent
    assert names(engine, "parent") == "C S hc CH RX"


def test_scenario_081_a_link_to_another_run_from_workflow_code(engine, waiting):
    @step("s")
    def s():
        return 1

    @workflow("w")
    def w(ctx):
        if not ctx.step_completed("s"):
            return ctx.schedule_step("s", s)
        if ctx.child_operation("c") is None:
            return ctx.link_child_operation(ChildOperationReference("c", "flow", "x", flow_run_id="child"))
        return ctx.complete()

    with pytest.raises(RunNotFoundError) as caught:
        engine.start(w, run_id="r")
    assert caught.value.run_id == "child"
    assert names(engine, "r") == "C S sc ss sk"
    assert engine.store.row("r").blocked_code == "run_not_found"
    engine.start(waiting, run_id="child")
    engine.drive("r")
    assert names(engine, "r") == "C S sc ss sk CH RC"


def test_scenario_082_on_a_run_that_has_ended(engine, waiting):
    engine.start(waiting, run_id="r")
    engine.record_progress("r", PROGRESS)
    engine.link_child_operation("r", CHILD)
    engine.resume_hook("r", "h")
    for act in (lambda: engine.record_progress("r", PROGRESS), lambda: engine.link_child_operation("r", CHILD)):
        with pytest.raises(RunTerminalError):
            act()
    with pytest.raises(RunNotFoundError):
        engine.record_progress("nobody", PROGRESS)
    with pytest.raises(RunNotFoundError):
        engine.link_child_operation("nobody", CHILD)
    assert names(engine, "r") == "C S hc PG CH hr RC"


def test_scenario_083_commands_with_required_fields_only():
    progress = cmd.command_from_wire({"type": "record_progress", "progress": {"progress_id": "p", "completed": 1}})
    assert progress == cmd.RecordProgress(WorkflowProgress("p", 1, total=None, message=None, details=None))
    child = cmd.command_from_wire(
        {"type": "link_child_operation", "child": {"reference_id": "c", "kind": "k", "operation_id": "o"}}
    )
    assert child == cmd.LinkChildOperation(ChildOperationReference("c", "k", "o", flow_run_id=None, metadata=None))


def test_progress_moves_no_wake_up_and_drives_nothing(engine, waiting):
    asked = []
    code = waiting.function

    def counted(ctx):
        asked.append(1)
        return code(ctx)

    redefine("waiting", counted)
    engine.start(waiting, run_id="r")
    before, row = len(asked), engine.store.row("r")
    engine.record_progress("r", PROGRESS)
    engine.link_child_operation("r", CHILD)
    after = engine.store.row("r")
    assert len(asked) == before
    assert (after.wake_at, after.wake_reason) == (row.wake_at, row.wake_reason)


# --- who is told -----------------------------------------------------------------------------------------------------


@pytest.fixture
def heard():
    """What receivers of the signal hear, in order, with what was committed then."""
    found = []

    def hear(sender, envelope, **kwargs):
        found.append((sender, envelope))

    event_recorded.connect(hear)
    yield found
    event_recorded.disconnect(hear)


@pytest.fixture
def all_verbs(engine, waiting):
    """A run that meets every verb of the host."""

    def act(engine):
        engine.start(waiting, run_id="r")
        engine.start(waiting, run_id="r")
        engine.record_progress("r", PROGRESS)
        engine.record_progress("r", PROGRESS)
        engine.link_child_operation("r", CHILD)
        engine.resume_hook("r", "h", actor="ann")

    return act


def test_the_signal_tells_every_event_once_and_in_order(engine, all_verbs, heard):
    all_verbs(engine)
    assert [envelope for _sender, envelope in heard] == engine.history("r")
    assert {sender for sender, _envelope in heard} == {"waiting"}


def test_receivers_may_choose_a_workflow(engine, all_verbs):
    found = []

    def hear(sender, envelope, **kwargs):
        found.append(envelope.type)

    others = []

    def hear_another(sender, envelope, **kwargs):
        others.append(envelope.type)

    chosen = "".join(["wait", "ing"])  # equal to the name, and another object
    event_recorded.connect(hear_another, sender="another")
    event_recorded.connect(hear, sender=chosen)
    try:
        all_verbs(engine)
    finally:
        assert event_recorded.disconnect(hear_another, sender="another")
        assert event_recorded.disconnect(hear, sender="waiting")
    assert found == [envelope.type for envelope in engine.history("r")]
    assert others == []


class Failing:
    def on_event(self, envelope):
        raise ValueError("an observer that fails")


class Listening:
    def __init__(self):
        self.heard = []

    def on_event(self, envelope):
        self.heard.append(envelope)


def test_an_observer_that_fails_changes_nothing(store, all_verbs, caplog):
    listening = Listening()
    engine = engine_on(store, observers=[Failing(), listening])

    def fails(sender, envelope, **kwargs):
        raise ValueError("a receiver that fails")

    event_recorded.connect(fails)
    try:
        with caplog.at_level(logging.CRITICAL, "django.dispatch"):
            all_verbs(engine)
    finally:
        event_recorded.disconnect(fails)
    assert names(engine, "r") == "C S hc PG CH hr RC"
    assert listening.heard == engine.history("r")


@pytest.mark.parametrize(
    "store", [pytest.param("django", marks=pytest.mark.django_db(transaction=True))], indirect=True
)
class TestAfterCommit:
    def test_an_event_is_committed_when_it_is_told(self, engine, all_verbs):
        """Another connection sees each event by the time its observers hear of it, whichever verb wrote it."""
        seen = []

        def hear(sender, envelope, **kwargs):
            seen.append(Crowd(lambda: engine.store.row(envelope.run_id).last_sequence >= envelope.sequence).join()[0])

        event_recorded.connect(hear)
        try:
            all_verbs(engine)
        finally:
            event_recorded.disconnect(hear)
        assert seen == [True] * 7

    def test_nothing_is_told_of_what_is_rolled_back(self, engine, waiting, heard):
        with transaction.atomic():
            engine.start(waiting, run_id="r")
            engine.record_progress("r", PROGRESS)
            assert heard == []
            transaction.set_rollback(True)
        assert heard == []
        assert connections["default"].in_atomic_block is False

    def test_inside_a_transaction_events_are_told_on_commit(self, engine, waiting, heard):
        with transaction.atomic():
            engine.start(waiting, run_id="r")
            engine.record_progress("r", PROGRESS)
            assert heard == []
        told = sorted((envelope for _sender, envelope in heard), key=lambda envelope: envelope.sequence)
        assert told == engine.history("r")
        assert names(engine, "r") == "C S PG hc"

    def test_an_observer_may_call_the_engine(self, engine, waiting):
        def hear(sender, envelope, **kwargs):
            if envelope.type == "hook_created":
                engine.record_progress(envelope.run_id, PROGRESS)

        event_recorded.connect(hear)
        try:
            engine.start(waiting, run_id="r")
        finally:
            event_recorded.disconnect(hear)
        assert names(engine, "r") == "C S hc PG"
