"""Scenarios 100 to 109: what is due is found, hinted at once per run, and brought in by whoever takes the hint."""

from __future__ import annotations

from datetime import timedelta

import pytest

from flow_app import RetryPolicy, WorkflowProgress, step, workflow
from flow_app.core.ports import EventStore
from flow_app.core.snapshot import RunStatus
from flow_app.core.tasks import DriveRun, ResumeScheduledRun
from flow_app.dispatch import FlowScheduler, handle_task
from flow_app.errors import ConfigurationError
from tests.engine.logbook import Queue, inline, queued, story

HOUR = timedelta(hours=1)
SECOND = timedelta(seconds=1)
GRACE = timedelta(seconds=31)


@pytest.fixture
def timer(clock):
    """A workflow that waits until the time in its input."""

    @workflow("timer")
    def timer(ctx):
        if not ctx.wait_completed("w"):
            return ctx.wait_until("w", ctx.input)
        return ctx.complete("done")

    return timer


@pytest.fixture
def flaky():
    """A workflow whose one step fails once and is tried again after two minutes."""

    @step("flaky", retry=RetryPolicy.fixed(2, timedelta(seconds=120)))
    def body(ctx):
        if ctx.attempt == 1:
            raise ValueError("not yet")
        return "ok"

    @workflow("flaky")
    def flaky(ctx):
        if not ctx.step_completed("a"):
            return ctx.schedule_step("a", body)
        return ctx.complete(ctx.step_output("a"))

    return flaky


@pytest.fixture
def queue() -> Queue:
    return Queue()


@pytest.fixture
def scheduler(engine, queue) -> FlowScheduler:
    return FlowScheduler(engine, queue)


def due(report):
    return [(run.run_id, run.reason) for run in report.dispatched]


def test_scenario_100_a_tick_finds_the_due_timer_alone(engine, scheduler, queue, timer, clock):
    now = clock.now()
    engine.start(timer, now + HOUR, run_id="due")
    engine.start(timer, now + 2 * HOUR, run_id="future")
    assert not scheduler.tick().has_due_work
    clock.advance(HOUR)
    assert engine.list_due_waits() == [("due", "w")]
    assert engine.list_due_retries() == []
    assert due(scheduler.tick()) == [("due", "timer")]
    assert queue.take() == [DriveRun("due")]


def test_scenario_100_a_tick_a_moment_before_finds_nothing(engine, scheduler, timer, clock):
    engine.start(timer, clock.now() + HOUR, run_id="due")
    clock.advance(HOUR - timedelta(microseconds=1))
    assert scheduler.tick().run_ids == []
    clock.advance(timedelta(microseconds=1))
    assert scheduler.tick().run_ids == ["due"]


def test_scenario_101_a_delayed_retry_is_hinted_at_and_brought_in(engine, scheduler, queue, flaky, clock):
    engine.start(flaky, run_id="r1")
    assert story(engine) == "C S sc:a ss:a#1 sr:a#1"
    clock.advance(timedelta(seconds=120))
    assert due(scheduler.tick()) == [("r1", "retry")]
    outcome = handle_task(engine, *queue.take())
    assert outcome.resumed_retries == (("r1", "a"),)
    assert outcome.resumed_waits == ()
    assert story(engine) == "C S sc:a ss:a#1 sr:a#1 ss:a#2 sk:a RC"


def test_scenario_103_an_ended_run_with_a_past_timer_is_not_found(engine, scheduler, queue, timer, clock):
    engine.start(timer, clock.now() + HOUR, run_id="r1")
    engine.force_cancel("r1")
    clock.advance(2 * HOUR)
    assert not scheduler.tick().has_due_work
    assert queue.tasks == []


def test_scenario_104_how_long_until_the_next_wake_up(engine, scheduler, timer, clock):
    assert scheduler.next_wakeup_delay() is None
    engine.start(timer, clock.now() + HOUR, run_id="r1")
    assert scheduler.next_wakeup_delay() == HOUR
    clock.advance(2 * HOUR)
    assert scheduler.next_wakeup_delay() == timedelta()


def test_scenario_104_a_hook_alone_is_not_timed(engine, scheduler):
    @workflow("hook")
    def hook(ctx):
        return ctx.create_hook("h")

    engine.start(hook, run_id="r1")
    assert engine.snapshot("r1").status is RunStatus.SUSPENDED
    assert scheduler.next_wakeup_delay() is None


class Counting:
    """Counts the queries for due runs, and the reads of whole histories."""

    def __init__(self, store: EventStore) -> None:
        self._store = store
        self.asked = {"take_due": 0, "rows": 0, "load": 0}

    def __getattr__(self, name):
        if name in self.asked:
            self.asked[name] += 1
        return getattr(self._store, name)


def test_scenario_106_a_tick_and_a_worker_ask_once_for_what_is_due(store, timer, clock):
    counting = Counting(store)
    engine, queue = queued(counting)
    inline(store).start(timer, clock.now() + HOUR, run_id="r1")
    clock.advance(HOUR)
    FlowScheduler(engine).tick()
    assert counting.asked == {"take_due": 1, "rows": 0, "load": 0}
    handle_task(engine, *queue.take())
    assert counting.asked == {"take_due": 1, "rows": 0, "load": 1}
    assert story(engine) == "C S wc:w wk:w RC"


def test_scenario_107_one_run_is_resumed_and_another_due_one_is_left(engine, timer, clock):
    at = clock.now() + HOUR
    engine.start(timer, at, run_id="one")
    engine.start(timer, at, run_id="other")
    clock.advance(HOUR)
    outcome = handle_task(engine, ResumeScheduledRun("one", clock.now()))
    assert outcome.run_ids == ("one",)
    assert outcome.resumed_waits == (("one", "w"),)
    assert story(engine, "one") == "C S wc:w wk:w RC"
    assert story(engine, "other") == "C S wc:w"
    assert engine.snapshot("other").status is RunStatus.SUSPENDED


def test_scenario_108_a_redelivered_hint_commits_and_reports_nothing(engine, timer, clock):
    engine.start(timer, clock.now() + HOUR, run_id="r1")
    clock.advance(HOUR)
    assert handle_task(engine, DriveRun("r1")).resumed_waits == (("r1", "w"),)
    assert handle_task(engine, DriveRun("r1")).resumed_waits == ()
    assert story(engine) == "C S wc:w wk:w RC"


def test_scenario_109_a_row_is_due_to_the_microsecond_and_carries_its_build(engine, timer, clock):
    at = clock.now() + timedelta(microseconds=1)
    engine.start(timer, at, run_id="r1")
    assert engine.list_due_wakeups() == []
    assert engine.list_due_wakeups(at - timedelta(microseconds=1)) == []
    (found,) = engine.list_due_wakeups(at)
    assert (found.kind, found.run_id, found.subject_id, found.scheduled_at) == ("wait", "r1", "w", at)
    assert found.runtime_build_id is None


@pytest.mark.parametrize(
    "ending",
    [
        lambda engine: engine.resume_wait("r1", "w"),
        lambda engine: engine.request_cancellation("r1"),
        lambda engine: engine.force_cancel("r1"),
    ],
    ids=["completed", "cancellation requested", "ended"],
)
def test_scenario_109_a_timer_vanishes_with_what_closes_it(engine, clock, ending):
    @workflow("timer")
    def timer(ctx):
        if ctx.cancellation_request:
            return ctx.create_hook("cleanup")
        if not ctx.wait_completed("w"):
            return ctx.wait_until("w", ctx.input)
        return ctx.create_hook("h")

    at = clock.now() + HOUR
    engine.start(timer, at, run_id="r1")
    assert engine.next_wakeup().scheduled_at == at
    ending(engine)
    assert engine.next_wakeup() is None
    assert engine.list_due_wakeups(at) == []


def test_scenario_109_a_retry_vanishes_when_it_starts_and_an_immediate_one_never_shows(engine, flaky, clock):
    engine.start(flaky, run_id="r1")
    at = clock.now() + timedelta(seconds=120)
    assert engine.list_due_retries(at) == [("r1", "a")]
    assert engine.resume_due_retries(at) == [("r1", "a")]
    assert engine.list_due_retries(at) == []

    seen = []

    @step("at-once", retry=RetryPolicy.fixed(2))
    def at_once(ctx):
        seen.append(engine.list_due_retries(at))
        if ctx.attempt == 1:
            raise ValueError("again")

    @workflow("immediate")
    def immediate(ctx):
        return ctx.complete() if ctx.step_completed("b") else ctx.schedule_step("b", at_once)

    engine.start(immediate, run_id="r2")
    assert story(engine, "r2") == "C S sc:b ss:b#1 sr:b#1 ss:b#2 sk:b RC"
    assert seen == [[], []]


# --- what section 14 adds: interrupted runs, lost hints, one row per run --------------------------------------------


def test_a_run_with_several_things_due_is_one_row_and_one_hint(engine, scheduler, queue, clock):
    @step("slow", retry=RetryPolicy.fixed(2, HOUR))
    def slow(ctx):
        if ctx.attempt == 1:
            raise ValueError("later")

    @workflow("both")
    def both(ctx):
        if not ctx.wait_scheduled("w"):
            return ctx.wait_until("w", ctx.input)
        if not ctx.step_completed("a"):
            return ctx.schedule_step("a", slow)
        if not ctx.wait_completed("w"):
            return ctx.wait_until("w", ctx.input)
        return ctx.complete()

    engine.start(both, clock.now() + HOUR, run_id="r1")
    clock.advance(HOUR)
    assert engine.list_due_wakeups()[0].kind == "wait"
    assert [item.kind for item in engine.list_due_wakeups()] == ["wait", "retry"]
    assert scheduler.tick().run_ids == ["r1"]
    outcome = handle_task(engine, *queue.take())
    assert outcome.resumed_waits == (("r1", "w"),)
    assert outcome.resumed_retries == (("r1", "a"),)
    assert engine.snapshot("r1").status is RunStatus.COMPLETED


def test_a_run_whose_hint_was_lost_is_found(store, timer, clock):
    engine, queue = queued(store)
    engine.start(timer, clock.now() + HOUR, run_id="r1")
    queue.take()  # the broker lost it
    scheduler = FlowScheduler(engine)
    assert not scheduler.tick().has_due_work
    clock.advance(GRACE)
    assert due(scheduler.tick()) == [("r1", "dispatched")]
    handle_task(engine, *queue.take())
    assert story(engine) == "C S wc:w"


def test_ticks_before_the_work_is_handled_do_not_feed_a_backlog(engine, scheduler, queue, timer, clock):
    engine.start(timer, clock.now() + HOUR, run_id="r1")
    clock.advance(HOUR)
    assert scheduler.tick().run_ids == ["r1"]
    assert scheduler.tick().run_ids == []
    clock.advance(GRACE)
    assert scheduler.tick().run_ids == ["r1"]
    clock.advance(GRACE)
    assert scheduler.tick().run_ids == []  # the grace has doubled
    clock.advance(GRACE)
    assert scheduler.tick().run_ids == ["r1"]


def test_one_run_that_cannot_be_sent_does_not_stop_the_others(engine, timer, clock):
    class Picky(Queue):
        def dispatch(self, task):
            if task.run_id == "bad":
                raise OSError("broker away")
            super().dispatch(task)

    for run_id in ("bad", "good"):
        engine.start(timer, clock.now() + HOUR, run_id=run_id)
    clock.advance(HOUR)
    queue = Picky()
    report = FlowScheduler(engine, queue).tick()
    assert queue.take() == [DriveRun("good")]
    assert [run.run_id for run in report.failed] == ["bad"]
    assert report.run_ids == ["good"]


def test_a_scheduler_without_a_dispatcher_is_refused(engine):
    engine.services.dispatcher = None
    with pytest.raises(ConfigurationError):
        FlowScheduler(engine)


# --- somebody writes while due work is brought in -------------------------------------------------------------------


@pytest.fixture
def disturbed(store, clock):
    """A run with a due timer, whose workflow code is slow: meanwhile somebody does ``disturbed.meanwhile``."""
    host, _queue = queued(store)

    at = clock.now() + HOUR

    class Disturbed:
        meanwhile = None

    @workflow("disturbed")
    def flow(ctx):
        if ctx.cancellation_request:
            return ctx.cancel()
        if not ctx.wait_completed("w"):
            return ctx.wait_until("w", at)
        if Disturbed.meanwhile is not None:
            act, Disturbed.meanwhile = Disturbed.meanwhile, None
            act(host)
        return ctx.complete()

    inline(store).start(flow, run_id="r1")
    clock.advance(HOUR)
    return Disturbed


def test_a_due_timer_is_brought_in_though_somebody_writes_meanwhile(engine, disturbed):
    disturbed.meanwhile = lambda host: host.record_progress("r1", WorkflowProgress("p", 1))
    outcome = handle_task(engine, DriveRun("r1"))
    assert story(engine) == "C S wc:w PG wk:w RC"
    assert outcome.resumed_waits == (("r1", "w"),)


def test_a_timer_that_somebody_else_completed_meanwhile_is_not_reported(engine, disturbed):
    disturbed.meanwhile = lambda host: host.resume_wait("r1", "w")
    outcome = handle_task(engine, DriveRun("r1"))
    assert story(engine) == "C S wc:w wk:w RC"
    assert outcome.resumed_waits == ()


def test_a_timer_that_was_cancelled_meanwhile_is_not_brought_in(engine, disturbed):
    disturbed.meanwhile = lambda host: host.request_cancellation("r1")
    outcome = handle_task(engine, DriveRun("r1"))
    assert story(engine) == "C S wc:w CR RX"
    assert outcome.resumed_waits == ()


def test_a_hook_deadline_that_passed_is_recorded_though_somebody_writes_meanwhile(engine, store, clock):
    host, _queue = queued(store)
    at = clock.now() + HOUR

    @workflow("deadline")
    def deadline(ctx):
        if not ctx.hook_expired("h"):
            return ctx.create_hook("h", "tok", expires_at=at)
        if not ctx.progress("p"):
            host.record_progress("r1", WorkflowProgress("p", 1))
        return ctx.complete()

    engine.start(deadline, run_id="r1")
    clock.advance(HOUR)
    engine.drive("r1")
    assert story(engine) == "C S hc:h PG hx:h RC"


def test_a_scan_for_retries_reports_what_it_drove_and_not_what_others_drive(engine, flaky, clock, store):
    engine.start(flaky, run_id="r1")
    clock.advance(timedelta(seconds=120))
    assert store.claim("r1", lease=timedelta(seconds=30)) is not None
    assert engine.resume_due_retries(clock.now()) == []
    assert story(engine) == "C S sc:a ss:a#1 sr:a#1"
