"""Drives that meet steps that are out, and workers that shut down."""

from __future__ import annotations

import os
from typing import Any

import pytest
from django.db import transaction

from flow_app import RetryPolicy, errors, step, workflow
from flow_app.core.context import StepContext
from flow_app.core.tasks import RunStep
from flow_app.engine import shutdown
from flow_app.models import StepExecution
from tests.engine.conftest import inline_engine
from tests.engine.logbook import alone
from tests.engine.mailbox import Died

pytestmark = pytest.mark.django_db(transaction=True)


# --- the driver -------------------------------------------------------------------------------------------------------


def test_a_driver_that_comes_by_leaves_steps_out_where_they_are(broker, batch, calls):
    broker.engine.start("batch", run_id="r")
    broker.drive()
    for _ in range(3):
        broker.engine.drive("r")
    assert len(broker.box.steps) == 3
    assert broker.store.row("r").steps_awaited == "all"
    broker.work_off()
    assert calls == {"a": 1, "b": 1, "c": 1}


def test_a_driver_that_sends_no_steps_leaves_those_that_are_out(broker, batch, calls):
    """After a change of the dispatcher, the scheduler has the steps run where it runs."""
    broker.engine.start("batch", run_id="r")
    broker.drive()
    broker.deliver("a")
    inline = inline_engine(broker.store)
    inline.drive("r")
    assert calls == {"a": 1}
    for step_id in "bc":
        inline.services.dispatcher.dispatch(RunStep("r", step_id, 1))
    assert inline.snapshot("r").output == ["A", "B", "C"]
    assert calls == {"a": 1, "b": 1, "c": 1}


def test_an_outcome_that_comes_in_behind_the_drives_back_is_not_run_again(broker, calls, monkeypatch):
    """The state says that the step runs, and its row is gone: it has just settled, and is not lost."""

    @step("far", dispatch="task")
    def far(ctx: StepContext) -> str:
        calls[ctx.step_id] += 1
        return "once"

    broker.engine.start(alone(far), run_id="r")
    broker.drive()
    inline = inline_engine(broker.store)
    steps_out = broker.store.steps_out

    def settled_just_now(row: Any) -> Any:
        monkeypatch.undo()
        broker.deliver("s")
        return steps_out(row)

    monkeypatch.setattr(broker.store, "steps_out", settled_just_now)
    inline.drive("r")
    assert inline.snapshot("r").output == "once"
    assert calls == {"s": 1}


def test_steps_that_ran_in_a_drive_that_died_travel_from_then_on(broker, batch, calls):
    dead = inline_engine(broker.store)

    @step("killer", retry=RetryPolicy.none())
    def killer(ctx: StepContext) -> int:
        calls[ctx.step_id] += 1
        if sum(calls.values()) == 1:
            raise Died
        return 1

    @workflow("w")
    def w(ctx: Any) -> Any:
        if ctx.step_completed("a") and ctx.step_completed("b"):
            return ctx.complete()
        return ctx.schedule_steps([ctx.step("a", killer), ctx.step("b", killer)])

    with pytest.raises((Died, errors.RuntimeFailureError)):
        dead.start(w, run_id="r")
    started = broker.types().count("step_started")
    broker.pass_time(31)
    broker.drive()
    assert broker.box.steps
    broker.work_off()
    assert broker.engine.snapshot("r").status == "completed"
    assert broker.types().count("step_started") == started == 2


def test_a_workflow_that_fails_is_blocked_and_outcomes_bring_it_back_at_once(broker, batch):
    broken = [True]

    @workflow("w")
    def w(ctx: Any) -> Any:
        if not ctx.step_scheduled("a"):
            return ctx.schedule_steps([ctx.step(step_id, "job") for step_id in "abc"])
        if broken[0] and ctx.step_completed("a"):
            raise ValueError("a bug")
        if all(ctx.step_completed(step_id) for step_id in "abc"):
            return ctx.complete()
        return ctx.schedule_steps([ctx.step(step_id, "job") for step_id in "abc"])

    broker.engine.start(w, run_id="r")
    broker.drive()
    broker.deliver("a")
    with pytest.raises(errors.RuntimeFailureError):
        broker.engine.drive("r")
    assert broker.store.row("r").steps_awaited == "any"
    broken[0] = False
    broker.deliver("b")
    assert broker.box.drives == ["r"]
    broker.work_off()
    assert broker.engine.snapshot("r").status == "completed"
    assert broker.store.row("r").blocked_code == ""


def test_a_step_does_not_run_in_a_transaction_of_its_caller(broker, batch):
    broker.engine.start("batch", run_id="r")
    broker.drive()
    with transaction.atomic(), pytest.raises(errors.InvalidTransitionError, match="inside a transaction"):
        broker.engine.run_step("r", "a", 1)


# --- shutting down ----------------------------------------------------------------------------------------------------


@pytest.fixture
def shutting_down():
    yield shutdown.request
    shutdown.withdraw()


def test_a_worker_that_shuts_down_stops_at_its_next_turn_and_claims_nothing_more(broker, batch, shutting_down):
    ran: list[int] = []

    @step("short")
    def short(n: int) -> None:
        ran.append(n)
        if n == 2:
            shutting_down()

    @workflow("w")
    def w(ctx: Any) -> Any:
        for n in range(5):
            if not ctx.step_completed(f"s{n}"):
                return ctx.schedule_step(f"s{n}", short, n)
        return ctx.complete()

    broker.engine.start(w, run_id="r")
    broker.drive()
    row = broker.store.row("r")
    assert ran == [0, 1, 2]
    assert broker.types()[-1] == "step_completed"
    assert (row.lease_expires_at, row.wake_reason) == (None, "dispatched")
    assert broker.box.drives == ["r"]
    broker.engine.start("batch", run_id="other")
    broker.engine.resume_scheduled_run("other")
    broker.drive()
    assert ran == [0, 1, 2]
    assert broker.store.row("other").lease_epoch == 0
    shutdown.withdraw()
    broker.engine.resume_scheduled_run("r")
    assert broker.engine.snapshot("r").status == "completed"


def test_a_worker_that_shuts_down_takes_no_step(broker, batch, calls, shutting_down):
    broker.engine.start("batch", run_id="r")
    broker.drive()
    shutting_down()
    assert broker.deliver("a") == [False]
    assert calls == {}
    assert StepExecution.objects.get(step_id="a").deliveries == 0


def test_forked_children_know_that_their_parent_was_told_to_shut_down(shutting_down):
    read, write = os.pipe()
    child = os.fork()
    if not child:  # a child that waits for its parent, looks, and ends without any clean-up of pytest's
        os.close(write)
        os.read(read, 1)
        os._exit(0 if shutdown.requested() else 1)
    os.close(read)
    shutting_down()
    os.write(write, b".")
    os.close(write)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
