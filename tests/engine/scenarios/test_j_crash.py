"""Scenarios 92 to 97: what a process left half done, another one finishes."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path

import pytest

from flow_app import RetryPolicy, step, workflow
from flow_app.core.events import EventEnvelope
from flow_app.core.snapshot import OutcomeType, RunStatus, StepStatus
from flow_app.errors import RuntimeBuildUnavailableError
from tests.engine.logbook import Crash, CrashingStore, holding, inline, of_build, spec_wire, story, wire_history

RECORDED = Path(__file__).parents[1] / "fixtures" / "v0.13.1-running-step.json"
LEASE = timedelta(seconds=31)


@pytest.fixture
def calls() -> list[int]:
    """The attempts of step ``a``, in the order its body was called."""
    return []


@pytest.fixture
def flow(calls):
    @step("a", retry=RetryPolicy.none())
    def a(ctx):
        calls.append(ctx.attempt)
        return "out"

    @workflow("flow")
    def flow(ctx):
        if not ctx.step_completed("a"):
            return ctx.schedule_step("a", a)
        return ctx.complete(ctx.step_output("a"))

    return flow


def test_scenario_092_a_completion_that_was_not_stored_is_redelivered(store, clock, flow, calls):
    with pytest.raises(Crash):
        inline(CrashingStore(store, holding("step_completed"))).start(flow, run_id="r1")
    engine = inline(store)
    assert story(engine) == "C S sc:a ss:a#1"
    assert engine.snapshot("r1").steps["a"].status is StepStatus.RUNNING
    clock.advance(LEASE)
    engine.drive("r1")
    assert story(engine) == "C S sc:a ss:a#1 sk:a RC"
    assert calls == [1, 1]


def test_scenario_092_a_completion_that_was_stored_is_not_run_again(store, clock, flow, calls):
    with pytest.raises(Crash):
        inline(CrashingStore(store, holding("step_completed"), after=True)).start(flow, run_id="r1")
    clock.advance(LEASE)
    engine = inline(store)
    assert engine.drive("r1").status is RunStatus.COMPLETED
    assert story(engine) == "C S sc:a ss:a#1 sk:a RC"
    assert calls == [1]


def test_scenario_092_until_the_lease_expires_nobody_else_drives(store, clock, flow, calls):
    with pytest.raises(Crash):
        inline(CrashingStore(store, holding("step_completed"))).start(flow, run_id="r1")
    engine = inline(store)
    assert engine.resume_scheduled_run("r1") == []
    assert calls == [1]


FAILED = "C S sc:a ss:a#1 sf:a#1"
ERROR = {"error": "runtime error: no"}


def test_scenario_093_a_failure_that_the_run_was_not_told_of_is_repaired_before_workflow_code(engine, flow, calls):
    engine.import_run(wire_history(FAILED, sf=ERROR))
    snapshot = engine.drive("r1")
    assert story(engine) == f"{FAILED} RE:a#1"
    assert snapshot.terminal_outcome.type is OutcomeType.RETRY_EXHAUSTED
    assert snapshot.error == ERROR["error"]
    assert calls == []


def test_scenario_094_the_failure_beats_a_later_cancellation_request(engine, flow, calls):
    engine.import_run(wire_history(FAILED, sf=ERROR))
    snapshot = engine.request_cancellation("r1", "too late")
    assert story(engine) == f"{FAILED} CR RE:a#1"
    assert (snapshot.status, snapshot.terminal_outcome.type) == (RunStatus.FAILED, OutcomeType.RETRY_EXHAUSTED)
    assert calls == []


def test_scenario_095_a_run_that_was_ended_before_it_started_stays_ended(engine, flow, calls):
    engine.import_run(wire_history("C"))
    assert engine.snapshot("r1").status is RunStatus.PENDING
    engine.force_cancel("r1", "changed my mind")
    assert engine.start("flow", run_id="r1") == "r1"
    assert story(engine) == "C RX"
    assert engine.snapshot("r1").error == "changed my mind"
    assert calls == []


@pytest.mark.parametrize("verb", ["start", "drive"])
def test_a_pending_run_is_started_before_anything_else(engine, flow, calls, verb):
    """Section 14: not only start repairs a lost run_started."""
    engine.import_run(wire_history("C"))
    engine.start("flow", run_id="r1") if verb == "start" else engine.drive("r1")
    assert story(engine) == "C S sc:a ss:a#1 sk:a RC"


def test_scenario_097_a_recorded_history_is_taken_over_and_driven_to_its_end(store, clock, calls):
    @step("charge-card")
    def charge(ctx):
        calls.append(ctx.attempt)
        return {"charged": ctx.input["amount"]}

    @workflow("retained-invoice", version="0.13.1")
    def retained(ctx):
        if not ctx.step_completed("charge"):
            return ctx.schedule_step("charge", charge, {"amount": 4200}, retry=RetryPolicy.none())
        return ctx.complete(ctx.step_output("charge"))

    recorded = json.loads(RECORDED.read_text())
    envelopes = [EventEnvelope.from_wire(item) for item in recorded]
    assert [item.to_wire() for item in envelopes] == recorded

    engine = of_build(store, "worker-v1", "retained-worker-v0131")
    run_id = engine.import_run(envelopes)
    assert [item.to_wire() for item in engine.history(run_id)] == recorded
    snapshot = engine.drive(run_id)
    assert story(engine, run_id) == "C S sc:charge ss:charge#1 sk:charge RC"
    assert [item.to_wire() for item in engine.history(run_id)][:4] == recorded
    assert (snapshot.output, calls) == ({"charged": 4200}, [1])


def test_scenario_097_only_its_own_build_drives_it(store, flow, calls):
    engine = of_build(store, "worker-v1")
    engine.import_run(wire_history("C S", C={"spec": spec_wire(build="retained-worker-v0131")}))
    with pytest.raises(RuntimeBuildUnavailableError):
        engine.drive("r1")
    assert story(engine) == "C S"
