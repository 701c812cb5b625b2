"""The scheduler: many ticks at once, batches, routes, and runs that are bad in one way or another."""

from __future__ import annotations

import itertools
from datetime import timedelta

import pytest

from flow_app import workflow
from flow_app.core.ports import DueRun, StepDispatcher
from flow_app.core.remote import DueStep
from flow_app.core.tasks import DriveRun, RunStep
from flow_app.dispatch import FlowScheduler
from flow_app.dispatch.scheduler import BATCH
from flow_app.errors import ConfigurationError, RuntimeBuildRouteNotFoundError
from tests.engine.logbook import Queue, inline, queued
from tests.store.support import LEASE, at_once, begin

GRACE = timedelta(seconds=31)
HOUR = timedelta(hours=1)


def many(store, count, **values):
    for number in range(count):
        begin(store, f"r{number:04}", **values)


def run_ids(tasks):
    return sorted(task.run_id for task in tasks)


@pytest.mark.parametrize("on_missing_route", ["error", "skip"])
def test_many_ticks_at_once_send_each_run_once(store, on_missing_route):
    many(store, 130)
    engine, queue = queued(store)
    scheduler = FlowScheduler(engine, on_missing_route=on_missing_route)
    reports = at_once(*[scheduler.tick] * 4)
    reports.append(scheduler.tick())  # what all four had locked while they counted
    assert run_ids(queue.take()) == store.run_ids()
    assert sorted(run_id for report in reports for run_id in report.run_ids) == store.run_ids()
    assert not scheduler.tick().has_due_work


def test_a_backlog_is_taken_in_batches_and_up_to_the_limit(store):
    many(store, 2 * BATCH + 10)
    engine, queue = queued(store)
    sizes = []
    take, store.take_due = store.take_due, lambda **kwargs: sizes.append(kwargs["limit"]) or take(**kwargs)
    scheduler = FlowScheduler(engine)
    assert len(scheduler.tick(limit=BATCH + 5).dispatched) == BATCH + 5
    assert sizes == [BATCH, 5]
    assert len(scheduler.tick().dispatched) == BATCH + 5
    assert len(set(run_ids(queue.take()))) == 2 * BATCH + 10


def test_a_tick_that_dies_between_taking_and_sending_loses_nothing(store, clock):
    many(store, 3)
    engine, queue = queued(store)

    class Dying(Queue):
        def dispatch(self, task):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        FlowScheduler(engine, Dying()).tick()
    assert not FlowScheduler(engine).tick().has_due_work
    clock.advance(GRACE)
    FlowScheduler(engine).tick()
    assert run_ids(queue.take()) == store.run_ids()


def test_an_hour_of_missed_ticks_is_one_hint_for_each_run(store, clock):
    many(store, 3)
    engine, queue = queued(store)
    clock.advance(HOUR)
    for _ in range(5):
        FlowScheduler(engine).tick()
    assert run_ids(queue.take()) == store.run_ids()


def test_a_run_whose_workflow_is_broken_stops_no_other(store, clock):
    engine = inline(store)
    at = clock.now() + HOUR

    @workflow("patient")
    def patient(ctx):
        if not ctx.wait_completed("w"):
            return ctx.wait_until("w", at)
        if ctx.run_id == "bad":
            raise ValueError("broken")
        return ctx.complete()

    for run_id in ("a", "bad", "c"):
        engine.start(patient, run_id=run_id)
    clock.advance(HOUR)
    report = FlowScheduler(engine).tick()
    assert report.run_ids == ["a", "c"]
    assert [run.run_id for run in report.failed] == ["bad"]
    assert {engine.snapshot(run_id).status.value for run_id in ("a", "c")} == {"completed"}
    assert engine.row("bad").wake_reason == "blocked"


def test_a_run_that_kills_its_workers_is_hinted_at_ever_more_seldom_and_stops_no_other(store, clock):
    engine, queue = queued(store)
    begin(store, "killer")
    hints = []
    for second in range(3600):
        if FlowScheduler(engine).tick().dispatched:
            queue.take()
            hints.append(second)
            store.claim("killer", lease=LEASE)
        clock.advance(timedelta(seconds=1))
    pauses = [after - before for before, after in itertools.pairwise(hints)]
    assert pauses[:5] == [30] * 5
    assert pauses == sorted(pauses)
    assert len(hints) < 20
    begin(store, "good")
    assert FlowScheduler(engine).tick().run_ids == ["good"]


# --- routes ---------------------------------------------------------------------------------------------------------


def test_without_a_route_for_one_build_nothing_is_sent_and_nothing_is_moved(store):
    many(store, BATCH + 20)
    begin(store, "z", build="v2")  # behind the first batch
    engine, queue = queued(store)
    queue.routes = {None}
    before = list(store.rows())
    with pytest.raises(RuntimeBuildRouteNotFoundError, match="v2"):
        FlowScheduler(engine).tick()
    assert queue.take() == []
    assert list(store.rows()) == before


def test_a_skipped_build_is_reported_says_so_and_is_asked_for_again_after_one_grace(store, clock):
    begin(store, "routed")
    begin(store, "unrouted", build="v2")
    engine, queue = queued(store)
    queue.routes = {None}
    scheduler = FlowScheduler(engine, on_missing_route="skip")
    for _ in range(4):
        report = scheduler.tick()
        assert [due.run_id for due in report.left] == ["unrouted"]
        assert store.row("unrouted").wake_reason == "no_worker"
        assert not scheduler.tick().left
        clock.advance(GRACE)
    assert set(run_ids(queue.take())) == {"routed"}
    queue.routes = {None, "v2"}
    scheduler.tick()
    assert "unrouted" in run_ids(queue.take())


@pytest.mark.parametrize("given", ["skp", "", True, 0, "ERROR"])
def test_what_to_do_without_a_route_is_checked(engine, given):
    with pytest.raises(ConfigurationError, match="on_missing_route"):
        FlowScheduler(engine, on_missing_route=given)


# --- steps that travel ----------------------------------------------------------------------------------------------


class StepsDue:
    """A store that has steps due, once."""

    def __init__(self, store, *steps):
        self._store = store
        self.steps = list(steps)

    def __getattr__(self, name):
        return getattr(self._store, name)

    def send_steps(self, row, steps, *, grace):
        raise AssertionError("nothing is driven here")

    def take_due_steps(self, *, limit, grace):
        taken, self.steps = self.steps[:limit], self.steps[limit:]
        return taken

    def next_step_wake(self):
        return self._store.clock.now() + HOUR if self.steps else None


class StepQueue(Queue):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.steps = []

    def dispatch_step(self, step, *, build, queue):
        self.steps.append((step, build, queue))


def due_step(number, build=None, queue=None):
    return DueStep(f"r{number}", "s", 1, build, queue)


def test_due_steps_are_sent_with_the_build_of_their_run_and_their_queue(store):
    begin(store, "r9")
    engine, _ = queued(StepsDue(store, due_step(1), due_step(2, "v1"), due_step(3, "v1", "gpu")))
    queue = StepQueue()
    assert isinstance(queue, StepDispatcher)
    scheduler = FlowScheduler(engine, queue)
    report = scheduler.tick()
    assert queue.steps == [
        (RunStep("r1", "s", 1), None, None),
        (RunStep("r2", "s", 1), "v1", None),
        (RunStep("r3", "s", 1), "v1", "gpu"),
    ]
    assert queue.take() == [DriveRun("r9")]
    assert (report.dispatched, len(report.steps)) == ((DueRun("r9", None, "runnable"),), 3)


def test_a_dispatcher_that_knows_no_steps_gets_them_as_tasks(store):
    engine, queue = queued(StepsDue(store, due_step(1)))
    FlowScheduler(engine).tick()
    assert queue.take() == [RunStep("r1", "s", 1)]


def test_a_step_without_a_route_is_left_unless_it_names_its_queue(store):
    engine, _ = queued(StepsDue(store, due_step(1, "v2"), due_step(2, "v2", "gpu")))
    queue = StepQueue(routes={None})
    report = FlowScheduler(engine, queue, on_missing_route="skip").tick()
    assert report.left == (due_step(1, "v2"),)
    assert [step.run_id for step, *_ in queue.steps] == ["r2"]


def test_without_a_route_for_a_step_nothing_is_sent(store):
    begin(store, "r9")
    engine, _ = queued(StepsDue(store, due_step(1, "v2")))
    queue = StepQueue(routes={None})
    with pytest.raises(RuntimeBuildRouteNotFoundError):
        FlowScheduler(engine, queue).tick()
    assert (queue.steps, queue.take()) == ([], [])


def test_a_step_that_cannot_be_sent_stops_no_other(store):
    class Picky(StepQueue):
        def dispatch_step(self, step, *, build, queue):
            if step.run_id == "r1":
                raise OSError("broker away")
            super().dispatch_step(step, build=build, queue=queue)

    engine, _ = queued(StepsDue(store, due_step(1), due_step(2)))
    queue = Picky()
    report = FlowScheduler(engine, queue).tick()
    assert report.failed == (due_step(1),)
    assert [step.run_id for step, *_ in queue.steps] == ["r2"]


def test_the_next_wake_up_may_be_a_steps(store, clock):
    engine, _ = queued(StepsDue(store, due_step(1)))
    assert FlowScheduler(engine).next_wakeup_delay() == HOUR
    begin(store, "r9", wake_at=clock.now() + GRACE)
    assert FlowScheduler(engine).next_wakeup_delay() == GRACE
