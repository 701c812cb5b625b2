"""Reported failures of systems of this kind that need several threads at one moment; numbers as in the collection."""

from __future__ import annotations

from threading import Event, Lock
from time import sleep
from typing import Any

import pytest
from django.db import transaction

from flow_app import ChildOperationReference, WorkflowProgress, step, workflow
from flow_app.conf import Options
from flow_app.core.tasks import FlowTask
from flow_app.dispatch import FlowScheduler
from flow_app.engine import FlowEngine
from flow_app.errors import HookConflictError, HookTokenConflictError, InvalidTransitionError, RunTerminalError
from flow_app.store import DjangoEventStore
from flow_app.testing import FakeClock
from tests.engine.conftest import inline_engine
from tests.store.support import at_once

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def engine(clock: FakeClock) -> FlowEngine:
    return inline_engine(DjangoEventStore(clock=clock), options=Options(step_threads=10))


def types(engine: FlowEngine, run_id: str) -> list[str]:
    return [item.type for item in engine.history(run_id)]


def approval(name: str = "approval", token: str | None = None) -> None:
    @workflow(name)
    def run(ctx: Any) -> Any:
        return ctx.complete(ctx.hook_payload("h")) if ctx.hook_received("h") else ctx.create_hook("h", token)


class Counting:
    """A dispatcher that only counts."""

    def __init__(self) -> None:
        self.sent: list[str] = []
        self._lock = Lock()

    def has_route(self, build: str | None) -> bool:
        return True

    def dispatch(self, task: FlowTask) -> None:
        with self._lock:
            self.sent.append(str(task.explicit_run_id))

    def dispatch_for_build(self, build: str | None, task: FlowTask) -> None:
        self.dispatch(task)


def test_field_report_04_a_stale_list_of_due_runs_moves_nothing(engine: FlowEngine, clock: FakeClock) -> None:
    approval()
    engine.services.dispatcher = None
    engine.start("approval", run_id="r")
    clock.advance(engine.services.options.dispatch_grace)
    with engine.store.transaction():
        stale = engine.store.take_due(limit=10, grace=engine.services.options.dispatch_grace)
    engine.resume_scheduled_run("r")
    engine.resume_hook("r", "h", 1)
    engine.resume_scheduled_run("r")
    before = engine.store.row("r"), engine.history("r")
    assert [engine.resume_scheduled_run(run.run_id) for run in stale] == [[]]
    assert (engine.store.row("r"), engine.history("r")) == before


def test_field_report_08_two_passes_at_once_share_the_runs(engine: FlowEngine, clock: FakeClock) -> None:
    approval()
    engine.services.dispatcher = Counting()
    ids = [engine.start("approval", run_id=f"r{index}") for index in range(30)]
    for _ in range(5):
        clock.advance(engine.services.options.dispatch_grace * 2**6)
        counting = Counting()
        results = at_once(*[FlowScheduler(engine, counting).tick] * 4)
        assert not [result for result in results if isinstance(result, BaseException)]
        assert sorted(counting.sent) == sorted(ids)


def test_field_report_13_many_steps_that_finish_together_pass_the_join_once(engine: FlowEngine) -> None:
    step("leaf")(lambda data: data)
    step("after")(lambda data: data)
    ids = [f"s{index}" for index in range(50)]

    @workflow("join")
    def join(ctx: Any) -> Any:
        if not all(ctx.step_completed(step_id) for step_id in ids):
            return ctx.schedule_steps(ctx.step(step_id, "leaf", step_id) for step_id in ids)
        if not ctx.step_completed("after"):
            return ctx.schedule_step("after", "after", [ctx.step_output(step_id) for step_id in ids])
        return ctx.complete(ctx.step_output("after"))

    for index in range(5):
        snapshot = engine.snapshot(engine.start("join", run_id=f"r{index}"))
        assert snapshot.output == ids
        assert types(engine, f"r{index}").count("step_completed") == 51


def test_field_report_13_and_23_answers_that_come_together_and_twice_pass_the_join_once(engine: FlowEngine) -> None:
    ids = [f"h{index}" for index in range(10)]

    @workflow("gather")
    def gather(ctx: Any) -> Any:
        missing = [hook_id for hook_id in ids if not ctx.hook_received(hook_id)]
        new = [hook_id for hook_id in missing if not ctx.hook_created(hook_id)]
        if missing:
            return ctx.create_hook((new or missing)[0])
        return ctx.complete([ctx.hook_payload(hook_id) for hook_id in ids])

    for index in range(8):
        run_id = engine.start("gather", run_id=f"r{index}")
        acts = [lambda hook_id=hook_id: engine.resume_hook(run_id, hook_id, hook_id) for hook_id in ids]  # noqa: B023
        results = at_once(*acts, *acts)
        assert sorted(map(str, results)) == ["False"] * 10 + ["True"] * 10
        assert engine.snapshot(run_id).output == ids
        assert types(engine, run_id).count("hook_received") == 10
        assert types(engine, run_id).count("run_completed") == 1


def test_field_report_14_an_answer_that_meets_the_creation_of_its_hook_is_delivered(engine: FlowEngine) -> None:
    approval()

    def answer(run_id: str) -> bool:
        while True:
            try:
                return engine.resume_hook(run_id, "h", run_id)
            except InvalidTransitionError:  # it is not there yet
                sleep(0.001)

    for index in range(20):
        run_id = f"r{index}"
        dispatcher, engine.services.dispatcher = engine.services.dispatcher, None
        engine.start("approval", run_id=run_id)
        engine.services.dispatcher = dispatcher
        results = at_once(lambda: engine.resume_scheduled_run(run_id), lambda: answer(run_id))  # noqa: B023
        assert results[1] is True
        assert engine.snapshot(run_id).output == run_id


@pytest.mark.parametrize("repeat", range(3))
def test_field_report_16_a_hint_delivered_many_times_runs_a_body_once(engine: FlowEngine, repeat: int) -> None:
    inside, go_on, running, most = Event(), Event(), 0, []

    @step("slow")
    def slow() -> str:
        nonlocal running
        running += 1
        most.append(running)
        inside.set()
        go_on.wait(30)
        running -= 1
        return "done"

    @workflow("slowly")
    def slowly(ctx: Any) -> Any:
        return ctx.complete(ctx.step_output("s")) if ctx.step_completed("s") else ctx.schedule_step("s", slow)

    engine.services.dispatcher = None
    engine.start("slowly", run_id="r")

    def late() -> Any:
        inside.wait(30)
        try:
            return engine.resume_scheduled_run("r")
        finally:
            go_on.set()

    hints = [lambda: engine.resume_scheduled_run("r")] * 3
    assert at_once(*hints, late, late, late) == [[]] * 6
    assert most == [1]
    assert types(engine, "r").count("step_completed") == 1
    assert engine.snapshot("r").output == "done"


@pytest.mark.parametrize("inside_atomic", [False, True])
def test_field_report_20_one_id_started_by_many_is_one_run(engine: FlowEngine, inside_atomic: bool) -> None:
    bodies = []
    step("once")(lambda: bodies.append(1))

    @workflow("once")
    def once(ctx: Any) -> Any:
        return ctx.complete("ok") if ctx.step_completed("s") else ctx.schedule_step("s", "once")

    def start() -> str:
        if not inside_atomic:
            return engine.start("once", [1], run_id="the-key")
        with transaction.atomic():
            return engine.start("once", [1], run_id="the-key")

    assert at_once(*[start] * 20) == ["the-key"] * 20
    assert engine.list_run_ids() == ["the-key"]
    assert bodies == [1]
    assert engine.snapshot("the-key").output == "ok"


def test_field_report_26_two_approvers_at_once_and_one_decision_stands(engine: FlowEngine) -> None:
    approval()
    for index in range(30):
        run_id = engine.start("approval", run_id=f"r{index}")
        yes, no = at_once(
            lambda: engine.resume_hook(run_id, "h", "approve"),  # noqa: B023
            lambda: engine.resume_hook(run_id, "h", "reject"),  # noqa: B023
        )
        winner, loser, decision = (yes, no, "approve") if yes is True else (no, yes, "reject")
        assert winner is True
        assert isinstance(loser, HookConflictError)
        assert types(engine, run_id).count("hook_received") == 1
        assert engine.snapshot(run_id).output == decision


def test_field_report_28_one_token_wanted_by_two_runs(engine: FlowEngine, clock: FakeClock) -> None:
    approval("ordered", token="order:1")
    for index in range(20):
        ids = [f"a{index}", f"b{index}"]
        results = at_once(*[lambda run_id=run_id: engine.start("ordered", run_id=run_id) for run_id in ids])
        refused = [result for result in results if isinstance(result, HookTokenConflictError)]
        assert len(refused) == 1, results
        loser = ids[results.index(refused[0])]
        (winner,) = set(ids) - {loser}
        assert refused[0].owner_run_id == winner
        assert engine.store.row(loser).blocked_code == "hook_token_conflict"
        engine.resume_hook_by_token("order:1", "first")
        clock.advance(engine.services.options.lease)
        FlowScheduler(engine).tick()
        assert engine.resume_hook_by_token("order:1", "second") == (loser, "h")
        assert [engine.snapshot(run_id).output for run_id in (winner, loser)] == ["first", "second"]


def test_field_report_46b_many_threads_claim_and_write_without_a_locked_database(engine: FlowEngine) -> None:
    approval()
    for index in range(10):
        run_id = engine.start("approval", run_id=f"r{index}")
        claims = at_once(*[lambda: engine.store.claim(run_id, lease=engine.services.options.lease)] * 8)  # noqa: B023
        assert sum(claim is not None for claim in claims) == 1, claims
        writes = at_once(
            *[lambda n=n: engine.record_progress(run_id, WorkflowProgress(f"p{n}", n)) for n in range(4)],  # noqa: B023
            *[
                lambda n=n: engine.link_child_operation(run_id, ChildOperationReference(f"c{n}", "k", "o"))  # noqa: B023
                for n in range(4)
            ],
        )
        assert writes == [True] * 8
        assert len(engine.snapshot(run_id).progress) == len(engine.snapshot(run_id).child_operations) == 4


def test_field_report_13_a_chatty_host_does_not_lose_the_outcome_of_a_step(engine: FlowEngine) -> None:
    calls = []

    @step("busy")
    def busy(n: int) -> int:
        calls.append(n)
        return n

    @workflow("chatty")
    def chatty(ctx: Any) -> Any:
        for n in range(10):
            if not ctx.step_completed(f"s{n}"):
                return ctx.schedule_step(f"s{n}", busy, n)
        return ctx.complete([ctx.step_output(f"s{n}") for n in range(10)])

    engine.services.dispatcher = None
    for index in range(5):
        calls.clear()
        run_id = engine.start("chatty", run_id=f"r{index}")

        def talk(speaker: int, run_id: str = run_id) -> int:
            told = 0
            while not engine.store.row(run_id).status.is_terminal and told < 30:
                try:
                    engine.record_progress(run_id, WorkflowProgress(f"{speaker}.{told}", told))
                except RunTerminalError:
                    break
                told += 1
            return told

        drive = lambda run_id=run_id: engine.resume_scheduled_run(run_id)  # noqa: E731
        results = at_once(drive, *[lambda speaker=speaker: talk(speaker) for speaker in range(3)])
        assert not [result for result in results if isinstance(result, BaseException)], results
        assert engine.snapshot(run_id).output == list(range(10))
        assert calls == list(range(10))
