"""What a worker does in one shift: half of the batch that it sent, and the drive after the last outcome."""

from __future__ import annotations

import threading
from collections import Counter
from datetime import timedelta
from typing import Any

import pytest
from django.db import DatabaseError

from flow_app import RetryPolicy, step, workflow
from flow_app.conf import Slice
from flow_app.core.context import StepContext
from flow_app.core.tasks import DriveRun, RunStep
from flow_app.engine import shift, shutdown
from flow_app.engine.shift import Shift
from tests.engine.mailbox import Broker, Died

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def broker(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> Broker:
    """Drives and steps go to the same workers, and a slow machine is no reason to send what is held."""
    monkeypatch.setattr(shift, "PATIENCE", 3600)
    broker.box.shared = True
    return broker


@pytest.fixture
def many(calls: Counter[str]) -> Any:
    """Workflow ``many``: as many members as its input says. Returns what their bodies do besides being counted."""
    does: dict[str, Any] = {}

    @step("one")
    def one(ctx: StepContext) -> str:
        calls[ctx.step_id] += 1
        does.get(ctx.step_id, lambda: None)()
        return ctx.step_id

    @workflow("many")
    def run(ctx: Any) -> Any:
        ids = [f"m{index}" for index in range(ctx.input)]
        if not all(ctx.step_completed(step_id) for step_id in ids):
            return ctx.schedule_steps([ctx.step(step_id, one) for step_id in ids])
        return ctx.complete(len(ids))

    return does


def pair(body: Any) -> None:
    """Register workflow ``w``: two members, ``a`` and ``b``, and the end."""

    @workflow("w")
    def w(ctx: Any) -> Any:
        done = all(ctx.step_completed(step_id) for step_id in "ab")
        return ctx.complete() if done else ctx.schedule_steps([ctx.step(step_id, body) for step_id in "ab"])


def sent(broker: Broker) -> list[str]:
    return [message.step_id for message in broker.box.steps]


def test_who_sends_a_batch_keeps_one_member_and_whose_outcome_is_awaited_drives_on(broker, batch, calls):
    broker.engine.start("batch", run_id="r")
    broker.drive()
    assert broker.box.steps == [RunStep("r", "a", 1), RunStep("r", "b", 1)]
    assert calls == {"c": 1}
    assert broker.deliver("a", "b") == [True, True]
    assert broker.box.drives == []
    assert broker.engine.snapshot("r").output == ["A", "B", "C"]
    assert calls == {"a": 1, "b": 1, "c": 1}


def test_where_steps_have_workers_of_their_own_every_member_travels_and_the_drive_too(broker, batch):
    broker.box.shared = False
    broker.engine.start("batch", run_id="r")
    broker.drive()
    assert broker.deliver("a", "b", "c") == [True] * 3
    assert broker.box.drives == ["r"]


@pytest.mark.parametrize("declared", [{"queue": "gpu"}, {"dispatch": "task"}], ids=["queue", "task"])
def test_what_is_declared_to_travel_does(broker, calls, declared):
    @step("far", **declared)
    def far(ctx: StepContext) -> None:
        calls[ctx.step_id] += 1

    pair(far)
    broker.engine.start("w", run_id="r")
    broker.drive()
    assert len(broker.box.steps) == 2
    assert calls == {}
    broker.deliver("a", "b")
    # Who works for a queue of its own drives no run.
    assert broker.box.drives == (["r"] if "queue" in declared else [])
    broker.work_off()
    assert broker.engine.snapshot("r").status == "completed"


def test_a_host_that_drives_a_run_itself_runs_no_member_of_a_batch(broker, batch, calls):
    broker.engine.start("batch", run_id="r")
    broker.engine.drive("r")
    assert len(broker.box.steps) == 3
    assert calls == {}


def test_many_batches_in_a_row_take_a_message_each(broker, calls):
    @step("job")
    def job(ctx: StepContext) -> None:
        calls[ctx.step_id] += 1

    @workflow("w")
    def w(ctx: Any) -> Any:
        for round_ in range(30):
            ids = [f"{round_}.{n}" for n in range(2)]
            if not all(ctx.step_completed(step_id) for step_id in ids):
                return ctx.schedule_steps([ctx.step(step_id, job) for step_id in ids])
        return ctx.complete()

    broker.engine.start("w", run_id="r")
    broker.drive()
    messages = 0
    while broker.box.steps:
        messages += 1
        broker.run(broker.box.steps.pop(0))
    assert broker.engine.snapshot("r").status == "completed"
    assert broker.box.drives == []
    assert set(calls.values()) == {1}
    assert messages == 30


def test_errors_of_what_follows_are_not_those_of_the_task(broker, batch, caplog):
    @workflow("w")
    def w(ctx: Any) -> Any:
        if all(ctx.step_completed(step_id) for step_id in "ab"):
            raise ValueError("deployed today")
        return ctx.schedule_steps([ctx.step(step_id, "job") for step_id in "ab"])

    broker.engine.start("w", run_id="r")
    broker.drive()
    assert broker.deliver("a") == [True]
    assert broker.store.row("r").blocked_code == "runtime"
    assert "after another task" in caplog.text


def test_a_member_that_is_kept_may_fail_and_is_tried_again_by_a_message(broker):
    @step("flaky", retry=RetryPolicy.fixed(2))
    def flaky(ctx: StepContext) -> int:
        if ctx.attempt == 1:
            raise ValueError
        return ctx.attempt

    pair(flaky)
    broker.engine.start("w", run_id="r")
    broker.drive()
    assert broker.box.steps == [RunStep("r", "a", 1), RunStep("r", "b", 2)]
    broker.work_off()
    assert broker.engine.snapshot("r").status == "completed"


# --- what is held -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("members", "held"), [(2, 1), (3, 1), (4, 2), (9, 4), (10, 5)])
def test_half_of_a_batch_is_sent_and_half_is_done(broker, many, calls, members, held):
    broker.engine.start("many", members, run_id="r")
    broker.drive()
    assert sent(broker) == [f"m{index}" for index in range(members - held)]
    assert calls == {f"m{index}": 1 for index in range(members - held, members)}
    broker.work_off()
    assert broker.engine.snapshot("r").output == members
    assert set(calls.values()) == {1}


class Clockwork(threading.Thread):
    """A timer that goes off when the test says so, in a thread of its own as any."""

    made: list[Clockwork] = []

    def __init__(self, seconds: float, act: Any) -> None:
        super().__init__(target=act)
        self.seconds = seconds
        self.state = "new"
        self.made.append(self)

    def start(self) -> None:
        self.state = "started"

    def cancel(self) -> None:
        self.state = "cancelled"

    def go_off(self) -> None:
        super().start()
        self.join(30)

    def join(self, timeout: float | None = None) -> None:
        if self.ident is not None:
            super().join(timeout)


@pytest.fixture
def timers(monkeypatch: pytest.MonkeyPatch) -> list[Clockwork]:
    monkeypatch.setattr(shift, "Timer", Clockwork)
    monkeypatch.setattr(Clockwork, "made", [])
    return Clockwork.made


def test_what_is_held_too_long_is_sent(broker, many, calls, timers):
    """The body of the first one takes long: others get the rest."""
    many["m5"] = lambda: timers[0].go_off()
    broker.engine.start("many", 10, run_id="r")
    broker.drive()
    assert sorted(sent(broker)) == [f"m{index}" for index in range(10) if index != 5]
    assert calls == {"m5": 1}
    broker.work_off()
    assert broker.engine.snapshot("r").output == 10
    assert set(calls.values()) == {1}


def test_the_timer_is_set_where_one_waits_for_another_and_stopped_at_the_end(broker, many, timers):
    broker.engine.start("many", 10, run_id="r")
    broker.drive()
    assert [(timer.seconds, timer.daemon, timer.state) for timer in timers] == [(3600, True, "cancelled")]
    broker.engine.start("many", 3, run_id="s")
    broker.drive()
    assert len(timers) == 1  # one alone is begun at once


def test_a_shift_does_not_end_while_its_timer_is_sending(broker, many, calls, timers, monkeypatch):
    """A worker's process may end right after: what the timer has taken out must be sent by then."""
    sending, may_go_on, ended = threading.Event(), threading.Event(), threading.Event()
    dispatch = broker.box.dispatch_step

    def wait_and_dispatch(message: RunStep, **where: Any) -> None:
        if threading.current_thread() is not threading.main_thread():
            sending.set()
            may_go_on.wait(30)
        dispatch(message, **where)

    def begin() -> None:
        threading.Thread.start(timers[0])
        sending.wait(30)

    end = Shift.end

    def let_go(worker: Shift) -> None:
        threading.Timer(0, may_go_on.set).start()
        end(worker)
        ended.set()

    monkeypatch.setattr(broker.box, "dispatch_step", wait_and_dispatch)
    monkeypatch.setattr(Shift, "end", let_go)
    many["m5"] = begin
    broker.engine.start("many", 10, run_id="r")
    broker.drive()
    assert ended.is_set()
    assert sorted(sent(broker)) == [f"m{index}" for index in range(10) if index != 5]


def _die() -> None:
    raise Died


def test_a_body_that_stops_its_process_leaves_what_is_held_to_others(broker, many, calls):
    many["m5"] = _die
    broker.engine.start("many", 10, run_id="r")
    with pytest.raises(Died):
        broker.drive()
    assert sorted(sent(broker)) == [f"m{index}" for index in range(10) if index != 5]
    assert calls == {"m5": 1}


def test_a_worker_that_is_told_to_stop_sends_what_is_held(broker, many, calls):
    many["m5"] = shutdown.request
    broker.engine.start("many", 10, run_id="r")
    try:
        broker.drive()
    finally:
        shutdown.withdraw()
    assert sorted(sent(broker)) == [f"m{index}" for index in range(10) if index != 5]
    assert calls == {"m5": 1}


def test_at_the_end_of_the_slice_what_is_held_is_sent(many, calls, monkeypatch):
    monkeypatch.setattr(shift, "PATIENCE", 3600)
    broker = Broker(drive_slice=Slice(steps=2))
    broker.box.shared = True
    broker.engine.start("many", 10, run_id="r")
    broker.drive()
    assert len(calls) == 2
    assert len(sent(broker)) == 8
    broker.work_off()
    assert broker.engine.snapshot("r").output == 10
    assert set(calls.values()) == {1}


@pytest.mark.parametrize("options", [{"steps": 0}, {"seconds": 0}], ids=["steps", "seconds"])
def test_nothing_is_held_once_the_slice_is_over(options):
    broker = Broker(drive_slice=Slice(**options))
    broker.box.shared = True
    assert not Shift(broker.engine.services, holds=True).holds_drive(DriveRun("r"), build=None)


def test_time_that_passes_ends_the_shift(broker):
    worker = Shift(broker.engine.services, holds=True)
    broker.clock.advance(timedelta(minutes=2))
    assert worker.is_over
    assert not worker.holds_drive(DriveRun("r"), build=None)


def test_a_drive_is_held_alone(broker):
    worker = Shift(broker.engine.services, holds=True)
    assert worker.holds_drive(DriveRun("r"), build=None)
    assert not worker.holds_drive(DriveRun("s"), build=None)
    assert worker.hold_half([RunStep("r", "a", 1)], build=None) == ()
    assert worker.next() == DriveRun("r")
    assert worker.next() is None
    assert worker.hold_half([RunStep("r", "a", 1)], build=None) == [RunStep("r", "a", 1)]


def test_what_is_held_at_the_end_is_sent(broker):
    worker = Shift(broker.engine.services, holds=True)
    assert worker.holds_drive(DriveRun("r"), build=None)
    worker.end()
    worker.end()
    assert broker.box.drives == ["r"]
    assert worker.next() is None


# --- errors of others -------------------------------------------------------------------------------------------------


def test_routing_that_fails_after_the_commit_is_logged_and_everything_is_sent(broker, many, monkeypatch, caplog):
    def fail(run_id: str, build: str | None) -> bool:
        raise LookupError("no such queue")

    monkeypatch.setattr(broker.box, "same_workers", fail)
    broker.engine.start("many", 3, run_id="r")
    broker.drive()
    assert len(sent(broker)) == 3
    assert broker.deliver("m0", "m1", "m2") == [True] * 3
    assert broker.box.drives == ["r"]
    assert broker.store.row("r").blocked_code == ""
    assert "where its messages go" in caplog.text


def test_whatever_fails_afterwards_is_not_the_task_s_error(broker, many, monkeypatch, caplog):
    broker.engine.start("many", 2, run_id="r")
    broker.drive()

    def fail(*args: Any, **how: Any) -> Any:
        raise DatabaseError("gone")

    monkeypatch.setattr(broker.store, "claim", fail)
    assert broker.deliver("m0") == [True]
    assert "gone" in caplog.text


@pytest.mark.parametrize("verb", ["resume_scheduled_run", "run_step"])
def test_the_verbs_of_a_worker_do_what_its_messages_do(broker, many, calls, verb):
    """They are for workers: what they are called for is done, and what follows from it as well."""
    broker.engine.start("many", 2, run_id="r")
    if verb == "run_step":
        broker.drive()
        broker.engine.run_step("r", "m0", 1)
        assert broker.engine.snapshot("r").status == "completed"
    else:
        broker.engine.resume_scheduled_run("r")
        assert calls == {"m1": 1}
