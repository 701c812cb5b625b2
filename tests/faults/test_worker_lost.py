"""A step that takes its process with it, again and again, ends its attempt, and its siblings do not pay for it."""

from __future__ import annotations

from typing import Any

import pytest

from flow_app import RetryPolicy, step, workflow
from flow_app.conf import Options
from flow_app.core.context import StepContext
from flow_app.core.ports import EventStore
from flow_app.engine import FlowEngine
from flow_app.testing import FakeClock
from tests.faults.mortal import Host
from tests.faults.workflows import Ledger

LENIENT = RetryPolicy.none().continue_workflow_on_failure()


def run_to_the_end(engine: FlowEngine, host: Host) -> None:
    engine.start("deadly", run_id=host.run_id)
    host.settle(engine, until=host.has_ended)


def steps_of(host: Host, ledger: Ledger) -> None:
    @step("poison")
    def poison(ctx: StepContext) -> None:
        ledger.note(ctx)
        host.die()

    @step("good")
    def good(ctx: StepContext) -> str:
        ledger.note(ctx)
        return "good"


@pytest.mark.parametrize(
    ("policy", "attempts", "outcome"),
    [
        (LENIENT, 1, "completed"),
        (RetryPolicy.none(), 1, "retry_exhausted"),
        (RetryPolicy(max_attempts=2), 2, "retry_exhausted"),
        (RetryPolicy(max_attempts=2, delay_ms=1000).continue_workflow_on_failure(), 2, "completed"),
    ],
)
def test_a_deadly_step_ends_as_worker_lost_under_its_own_policy(
    store: EventStore, clock: FakeClock, policy: RetryPolicy, attempts: int, outcome: str
) -> None:
    host, ledger = Host(store, clock, options=Options(max_deliveries=3)), Ledger()
    steps_of(host, ledger)

    @workflow("deadly")
    def deadly(ctx: Any) -> Any:
        if ctx.step_failed("p"):
            return ctx.complete(ctx.step_failed("p"))
        return ctx.schedule_step("p", "poison", retry=policy)

    host.live_through(run_to_the_end)
    snapshot = host.process().snapshot(host.run_id)
    assert snapshot.terminal_outcome is not None
    assert snapshot.terminal_outcome.type == outcome
    assert snapshot.steps["p"].error == "worker lost"
    assert ledger.calls == {("p", attempt): 3 for attempt in range(1, attempts + 1)}
    started = [item for item in store.history(host.run_id) if item.type == "step_started"]
    assert len(started) == attempts


@pytest.mark.parametrize("place", [0, 1, 2])
@pytest.mark.parametrize("max_deliveries", [1, 2, 3, 5])
@pytest.mark.parametrize("threads", [False, True])
def test_siblings_of_a_deadly_step_are_delivered_one_at_a_time_and_complete(
    store: EventStore, clock: FakeClock, place: int, max_deliveries: int, threads: bool
) -> None:
    host, ledger = Host(store, clock, options=Options(max_deliveries=max_deliveries), threads=threads), Ledger()
    steps_of(host, ledger)
    names = ["good", "good", "good"]
    names[place] = "poison"

    @workflow("deadly")
    def deadly(ctx: Any) -> Any:
        if all(ctx.step_completed(step_id) or ctx.step_failed(step_id) for step_id in "abc"):
            return ctx.complete("done")
        members = [ctx.step(step_id, name, retry=LENIENT) for step_id, name in zip("abc", names, strict=True)]
        return ctx.schedule_steps(members)

    host.live_through(run_to_the_end)
    snapshot = host.process().snapshot(host.run_id)
    poisoned = "abc"[place]
    assert snapshot.output == "done"
    assert snapshot.steps[poisoned].error == "worker lost"
    siblings = [snapshot.steps[step_id] for step_id in "abc" if step_id != poisoned]
    assert [item.output for item in siblings] == ["good", "good"]
    assert all(count <= 4 for (step_id, _), count in ledger.calls.items() if step_id != poisoned)
    assert ledger.calls[poisoned, 1] <= 3 * max(3, max_deliveries)
