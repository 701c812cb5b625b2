"""Scenarios 1 to 10: starting, and starting again."""

from __future__ import annotations

import pytest
from django.db import transaction

from flow_app import RuntimeBuildCompatibility, WorkflowSpec, step, workflow
from flow_app.core.spec import RuntimeSpec
from flow_app.errors import (
    FlowError,
    InvalidRunIdError,
    InvalidWorkflowError,
    NonDeterministicError,
    PayloadError,
    RunConflictError,
    RuntimeBuildUnavailableError,
    RuntimeFailureError,
    StepNotRegisteredError,
    WorkflowNotRegisteredError,
)
from tests.engine.scenarios.support import names, redefine, restarted, told


@pytest.fixture
def two_steps():
    """A workflow of two steps in a row."""
    calls = []

    @step("double")
    def double(value):
        calls.append(value)
        return value * 2

    @workflow("two")
    def two(ctx):
        if not ctx.step_completed("a"):
            return ctx.schedule_step("a", double, ctx.input)
        if not ctx.step_completed("b"):
            return ctx.schedule_step("b", double, ctx.step_output("a"))
        return ctx.complete(ctx.step_output("b"))

    two.calls = calls
    return two


def test_scenario_001_two_sequential_steps(engine, two_steps):
    run_id = engine.start(two_steps, 3)

    assert names(engine, run_id) == "C S sc ss sk sc ss sk RC"
    assert told(engine, run_id)[2:8] == ["sc:a", "ss:a", "sk:a", "sc:b", "ss:b", "sk:b"]
    run = engine.snapshot(run_id)
    assert run.status == "completed"
    assert run.output == 12
    assert [item.status for item in run.steps.values()] == ["completed", "completed"]
    assert two_steps.calls == [3, 6]


def test_scenario_002_the_same_start_twice_is_one_run(engine, two_steps):
    assert engine.start(two_steps, 3, run_id="r") == "r"
    before = engine.history("r")

    assert engine.start(two_steps, 3, run_id="r") == "r"
    assert engine.history("r") == before
    assert names(engine, "r").split().count("C") == names(engine, "r").split().count("S") == 1
    assert two_steps.calls == [3, 6]


def test_scenario_002_the_same_start_after_a_restart(engine, two_steps):
    engine.start(two_steps, 3, run_id="r")
    before = engine.history("r")

    again = restarted(engine)
    assert again.start(two_steps, 3, run_id="r") == "r"
    assert again.history("r") == before
    assert again.snapshot("r").status == "completed"


def test_scenario_004_another_version_is_a_conflict(engine, two_steps):
    engine.start(two_steps, 3, run_id="r")
    before = engine.history("r")

    with pytest.raises(RunConflictError, match="spec") as caught:
        engine.start(two_steps, 3, run_id="r", version="2")
    assert caught.value.run_id == "r"
    with pytest.raises(RunConflictError, match="spec"):
        engine.start(two_steps, 4, run_id="r", version="2")
    with pytest.raises(RunConflictError, match="input"):
        engine.start(two_steps, 4, run_id="r")
    with pytest.raises(RunConflictError, match="spec"):
        engine.start(WorkflowSpec("two", "2"), 3, run_id="r")
    assert engine.history("r") == before


def test_scenario_004_another_workflow_is_a_conflict(engine, two_steps):
    @workflow("other")
    def other(ctx):
        return ctx.complete()

    engine.start(two_steps, 3, run_id="r")
    with pytest.raises(RunConflictError, match="spec"):
        engine.start(other, 3, run_id="r")


@pytest.mark.parametrize("run_id", ["../x", "", "a/b", "-a", ".", " a", "a b", "é", "a\n", "a" * 129])
def test_scenario_005_a_run_id_of_other_characters(engine, two_steps, run_id):
    with pytest.raises(InvalidRunIdError) as caught:
        engine.start(two_steps, 3, run_id=run_id)
    assert caught.value.run_id == run_id
    assert engine.list_run_ids() == []


@pytest.mark.parametrize("run_id", ["a", "A-1_2.3:4", "9" * 128])
def test_scenario_005_run_ids_that_hold(engine, two_steps, run_id):
    assert engine.start(two_steps, 3, run_id=run_id) == run_id


@pytest.mark.parametrize(
    "spec",
    [
        WorkflowSpec(" "),
        WorkflowSpec(""),
        WorkflowSpec("two", " "),
        WorkflowSpec("two", "1", RuntimeSpec("python", " ", "run")),
        WorkflowSpec("two", "1", RuntimeSpec("python", "two", "")),
    ],
)
def test_scenario_007_a_blank_part_of_the_spec(engine, two_steps, spec):
    with pytest.raises(InvalidWorkflowError):
        engine.start(spec, 3, run_id="r")
    assert engine.list_run_ids() == []


@pytest.mark.parametrize(("name", "error"), [("", InvalidWorkflowError), ("nobody", WorkflowNotRegisteredError)])
def test_scenario_007_a_name_that_names_nothing(engine, name, error):
    with pytest.raises(error):
        engine.start(name, run_id="r")
    assert engine.list_run_ids() == []


def test_scenario_008_what_the_first_call_sees(engine):
    seen = []

    @workflow("w")
    def w(ctx):
        seen.append(([envelope.type for envelope in ctx.history], ctx.input, ctx.spec, ctx.run_id))
        return ctx.complete()

    spec = WorkflowSpec("w", "7")
    run_id = engine.start(spec, {"amount": [1, 2.0, None]})
    assert seen == [(["run_created", "run_started"], {"amount": [1, 2.0, None]}, spec, run_id)]
    run = engine.snapshot(run_id)
    assert (run.spec, run.input) == (spec, {"amount": [1, 2.0, None]})


def test_scenario_010_the_workflow_raises(engine):
    @workflow("w")
    def w(ctx):
        raise ValueError("no such vendor")

    with pytest.raises(RuntimeFailureError, match="no such vendor"):
        engine.start(w, run_id="r")
    assert names(engine, "r") == "C S"
    assert engine.snapshot("r").status == "running"

    redefine("w", lambda ctx: ctx.complete("fixed"))
    assert engine.drive("r").output == "fixed"
    assert names(engine, "r") == "C S RC"


def test_scenario_010_starting_again_drives_on(engine):
    @workflow("w")
    def w(ctx):
        raise ValueError("no such vendor")

    for _ in range(2):
        with pytest.raises(RuntimeFailureError):
            engine.start(w, run_id="r")
    redefine("w", lambda ctx: ctx.complete("fixed"))
    engine.start(w, run_id="r")
    assert names(engine, "r") == "C S RC"


def test_an_unknown_step_name_writes_nothing(engine):
    @workflow("w")
    def w(ctx):
        return ctx.schedule_step("s", "nobody")

    with pytest.raises(StepNotRegisteredError):
        engine.start(w, run_id="r")
    assert names(engine, "r") == "C S"


@pytest.mark.parametrize("value", [float("nan"), {1: "a"}, {"deep": {1, 2}}, object()])
def test_an_input_that_cannot_be_stored(engine, two_steps, value):
    with pytest.raises(PayloadError):
        engine.start(two_steps, value, run_id="r")
    assert engine.list_run_ids() == []


@pytest.mark.parametrize("command", [None, "complete", 3, {"type": "complete"}])
def test_a_workflow_that_returns_no_command(engine, command):
    @workflow("w")
    def w(ctx):
        return command

    with pytest.raises(FlowError, match="not a command"):
        engine.start(w, run_id="r")
    assert names(engine, "r") == "C S"


# --- what a repeated start compares: what was stated, never what was filled in ---------------------------------------


def test_a_default_that_changed_is_no_conflict(engine, two_steps):
    """The registry's version moves with a deploy; the caller who never said one repeats the same start."""
    engine.start(two_steps, 3, run_id="r")
    two_steps.spec = WorkflowSpec("two", "2")

    assert engine.start(two_steps, 3, run_id="r") == "r"
    assert engine.start("two", 3, run_id="r") == "r"
    assert engine.snapshot("r").spec.version == "1"
    assert engine.start(two_steps, 3, run_id="r", version="1") == "r"
    with pytest.raises(RunConflictError):
        engine.start(two_steps, 3, run_id="r", version="2")


def test_a_build_that_was_filled_in_is_no_conflict(engine, two_steps):
    first = restarted(engine, builds=RuntimeBuildCompatibility("b1"))
    first.start(two_steps, 3, run_id="r")
    assert first.runtime_build_id("r") == "b1"

    second = restarted(engine, builds=RuntimeBuildCompatibility("b2").with_compatible(["b1"]))
    assert second.start(two_steps, 3, run_id="r") == "r"
    assert second.start(two_steps, 3, run_id="r", build="b1") == "r"
    with pytest.raises(RunConflictError, match="spec"):
        second.start(two_steps, 3, run_id="r", build="b2")


def test_a_whole_spec_is_stated_whole(engine, two_steps):
    engine.start(two_steps, 3, run_id="r", build=None)
    assert engine.start(WorkflowSpec("two"), 3, run_id="r") == "r"
    with pytest.raises(RunConflictError, match="spec"):
        engine.start(WorkflowSpec("two", "1", RuntimeSpec("native_ts", "two", "run")), 3, run_id="r")


def test_a_finished_run_needs_no_admission_and_conflicts_come_first(engine, two_steps):
    pinned = restarted(engine, builds=RuntimeBuildCompatibility("b1"))
    pinned.start(two_steps, 3, run_id="done")

    @workflow("waits")
    def waits(ctx):
        return ctx.create_hook("h")

    pinned.start(waits, 3, run_id="open")
    other = restarted(engine, builds=RuntimeBuildCompatibility("b2"))
    assert other.start(two_steps, 3, run_id="done", build="b1") == "done"
    with pytest.raises(RunConflictError, match="input"):
        other.start(waits, 4, run_id="open", build="b1")
    with pytest.raises(RuntimeBuildUnavailableError) as caught:
        other.start(waits, 3, run_id="open", build="b1")
    assert (caught.value.required, caught.value.current) == ("b1", "b2")
    assert names(engine, "open") == "C S hc"


def test_a_build_nobody_here_runs_is_refused_and_not_created(engine, two_steps):
    pinned = restarted(engine, builds=RuntimeBuildCompatibility("b1"))
    with pytest.raises(RuntimeBuildUnavailableError):
        pinned.start(two_steps, 3, run_id="r", build="b9")
    with pytest.raises(RuntimeBuildUnavailableError):
        engine.start(two_steps, 3, run_id="r", build="b9")
    assert engine.list_run_ids() == []


def test_input_is_compared_strictly(engine, two_steps):
    engine.start(two_steps, {"a": 1, "b": True}, run_id="r")
    assert engine.start(two_steps, {"b": True, "a": 1}, run_id="r") == "r"
    for other in ({"a": 1.0, "b": True}, {"a": 1, "b": 1}, {"a": True, "b": True}):
        with pytest.raises(RunConflictError, match="input"):
            engine.start(two_steps, other, run_id="r")


# --- starting inside the caller's transaction ------------------------------------------------------------------------


@pytest.mark.parametrize("store", ["django"], indirect=True)
@pytest.mark.django_db(transaction=True)
class TestInsideTransactions:
    def test_a_start_is_driven_on_commit(self, engine, two_steps):
        with transaction.atomic():
            engine.start(two_steps, 3, run_id="r")
            assert names(engine, "r") == "C S"
            assert two_steps.calls == []
        assert names(engine, "r") == "C S sc ss sk sc ss sk RC"

    def test_a_start_rolled_back_leaves_nothing(self, engine, two_steps):
        with transaction.atomic():
            engine.start(two_steps, 3, run_id="r")
            transaction.set_rollback(True)
        assert engine.list_run_ids() == []
        assert two_steps.calls == []
        engine.start(two_steps, 4, run_id="r")
        assert engine.snapshot("r").output == 16

    def test_a_drive_that_fails_after_commit_blocks_the_run(self, engine):
        @workflow("w")
        def w(ctx):
            raise ValueError("broken")

        with transaction.atomic():
            engine.start(w, run_id="r")
        row = engine.store.row("r")
        assert (row.blocked_code, row.blocked_count) == ("runtime", 1)
        assert "broken" in row.blocked_text

    def test_a_drive_is_refused_inside_a_transaction(self, engine):
        @workflow("w")
        def w(ctx):
            return ctx.create_hook("h")

        engine.start(w, run_id="r")
        with transaction.atomic(), pytest.raises(FlowError, match="inside a transaction"):
            engine.drive("r")

    def test_the_same_start_twice_in_one_transaction(self, engine, two_steps):
        with transaction.atomic():
            engine.start(two_steps, 3, run_id="r")
            engine.start(two_steps, 3, run_id="r")
            with pytest.raises(RunConflictError):
                engine.start(two_steps, 4, run_id="r")
        assert names(engine, "r") == "C S sc ss sk sc ss sk RC"

    def test_host_verbs_join_the_transaction(self, engine):
        @workflow("w")
        def w(ctx):
            return ctx.complete(ctx.hook_payload("h")) if ctx.hook_received("h") else ctx.create_hook("h")

        engine.start(w, run_id="r")
        with transaction.atomic():
            engine.resume_hook("r", "h", "yes")
            transaction.set_rollback(True)
        assert names(engine, "r") == "C S hc"
        assert len(engine.list_active_hooks()) == 1
        with transaction.atomic():
            engine.resume_hook("r", "h", "no")
            assert names(engine, "r") == "C S hc hr"
        assert engine.snapshot("r").output == "no"


def test_nothing_of_a_decision_that_fails_is_written(engine):
    """The outcome before it is kept, alone."""

    @step("s")
    def s():
        return 1

    @workflow("w")
    def w(ctx):
        if ctx.step_completed("a"):
            return ctx.schedule_step("a", "s", {"changed": True})
        return ctx.schedule_step("a", s)

    with pytest.raises(NonDeterministicError):
        engine.start(w, run_id="r")
    assert names(engine, "r") == "C S sc ss sk"
