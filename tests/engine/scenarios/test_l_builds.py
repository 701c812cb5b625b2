"""Scenarios 110 to 119: a run goes only where its code is. (110, build ids themselves, is tested with the core.)"""

from __future__ import annotations

from datetime import timedelta

import pytest

from flow_app import ChildOperationReference, RuntimeBuildCompatibility, WorkflowProgress, workflow
from flow_app.authoring.runtime import RegistryRuntime
from flow_app.conf import Options
from flow_app.core.ports import EventStore
from flow_app.core.snapshot import RunStatus
from flow_app.core.tasks import DriveRun, ResumeDueWaits, ResumeHookByToken, ResumeWait
from flow_app.dispatch import FlowScheduler, RuntimeBuildTaskRouter, handle_task
from flow_app.engine import FlowEngine
from flow_app.errors import (
    ConfigurationError,
    InvalidRuntimeBuildIdError,
    InvalidTransitionError,
    RunConflictError,
    RunNotFoundError,
    RuntimeBuildRouteNotFoundError,
    RuntimeBuildUnavailableError,
)
from tests.engine.logbook import Queue, inline, of_build, spec_wire, story, wire_history

HOUR = timedelta(hours=1)


@pytest.fixture
def timer():
    @workflow("timer")
    def timer(ctx):
        if not ctx.wait_completed("w"):
            return ctx.wait_until("w", ctx.input)
        return ctx.complete("done")

    return timer


@pytest.fixture
def waiting(clock, store, timer):
    """Starts a run of a build that waits for an hour."""

    def waiting(run_id="r1", build="b1"):
        return of_build(store, build).start(timer, clock.now() + HOUR, run_id=run_id)

    return waiting


def test_scenario_111_a_new_run_is_pinned_to_the_current_build(store, waiting):
    waiting()
    engine = of_build(store, "b1")
    assert engine.runtime_build_id("r1") == engine.snapshot("r1").spec.runtime_build_id == "b1"
    assert engine.history("r1")[0].to_wire()["event"]["spec"]["runtime_build_id"] == "b1"
    assert engine.supports_runtime_build("b1")
    assert not engine.supports_runtime_build(None)
    assert engine.runtime_build_compatibility().current == "b1"


def test_scenario_112_an_unpinned_run_on_an_engine_of_a_build(store, timer, clock):
    at = clock.now() + HOUR
    with pytest.raises(RuntimeBuildUnavailableError) as caught:
        of_build(store, "b1").start(timer.spec, at, run_id="r1")
    assert (caught.value.required, caught.value.current) == (None, "b1")
    with pytest.raises(RunNotFoundError):
        inline(store).snapshot("r1")

    accepting = of_build(store, "b1", unpinned=True)
    accepting.start(timer.spec, at, run_id="r1")
    assert story(accepting) == "C S wc:w"
    assert accepting.snapshot("r1").status is RunStatus.SUSPENDED


def test_scenario_112_without_configured_builds_only_unpinned_runs_are_started(store, timer, clock):
    with pytest.raises(RuntimeBuildUnavailableError) as caught:
        inline(store).start(timer, clock.now(), run_id="r1", build="b1")
    assert (caught.value.required, caught.value.current) == ("b1", None)
    assert inline(store).list_run_ids() == []


def test_scenario_113_the_wrong_build_resumes_nothing_and_a_compatible_one_does(store, waiting):
    waiting()
    wrong = of_build(store, "b2")
    with pytest.raises(RuntimeBuildUnavailableError) as caught:
        wrong.resume_wait("r1", "w")
    assert (caught.value.run_id, caught.value.required, caught.value.current) == ("r1", "b1", "b2")
    assert story(wrong) == "C S wc:w"
    compatible = of_build(store, "b2", "b1")
    assert compatible.resume_wait("r1", "w") is True
    assert story(compatible) == "C S wc:w wk:w RC"


VERBS = {
    "drive": lambda engine: engine.drive("r1"),
    "resume_scheduled_run": lambda engine: engine.resume_scheduled_run("r1"),
    "resume_wait": lambda engine: engine.resume_wait("r1", "w"),
    "resume_hook": lambda engine: engine.resume_hook("r1", "h", 1),
    "resume_hook_by_token": lambda engine: engine.resume_hook_by_token("tok", 1),
    "dispose_hook": lambda engine: engine.dispose_hook("r1", "h"),
    "dispose_hook_by_token": lambda engine: engine.dispose_hook_by_token("tok"),
    "request_cancellation": lambda engine: engine.request_cancellation("r1"),
    "start": lambda engine: engine.start("both", run_id="r1"),
}


@pytest.mark.parametrize("verb", VERBS)
def test_the_wrong_build_writes_nothing(store, clock, verb):
    """9.1: admission comes before anything is appended."""
    at = clock.now() + HOUR

    @workflow("both")
    def both(ctx):
        return ctx.wait_until("w", at) if ctx.hook_created("h") else ctx.create_hook("h", "tok")

    opened = "C S hc:h wc:w"
    spec, hook, wait = spec_wire("both", "b1"), {"token": "tok", "metadata": None}, {"resume_at": at.isoformat()}
    of_build(store, "b1").import_run(wire_history(opened, C={"spec": spec}, hc=hook, wc=wait))
    wrong = of_build(store, "b2")
    with pytest.raises(RuntimeBuildUnavailableError):
        VERBS[verb](wrong)
    assert story(wrong) == opened
    assert store.row("r1").blocked_code == ""


def test_the_wrong_build_may_end_record_and_read(store, waiting):
    """9.1: what needs no workflow code needs no build."""
    waiting()
    wrong = of_build(store, "b2")
    assert wrong.record_progress("r1", WorkflowProgress("p", 1))
    assert wrong.link_child_operation("r1", ChildOperationReference("c", "task", "42"))
    assert wrong.snapshot("r1").status is RunStatus.SUSPENDED
    assert wrong.force_cancel("r1")
    assert wrong.drive("r1").status is RunStatus.CANCELLED
    assert wrong.resume_wait("r1", "w") is False
    assert wrong.request_cancellation("r1").status is RunStatus.CANCELLED
    assert story(wrong) == "C S wc:w PG CH RX"


def test_a_start_is_compared_before_the_build_is_asked_for(store, waiting, clock):
    """Section 14: comparison first; a run that has ended needs no admission."""
    waiting()
    wrong = of_build(store, "b2")
    with pytest.raises(RunConflictError):
        wrong.start("timer", "another input", run_id="r1")
    with pytest.raises(RuntimeBuildUnavailableError):
        wrong.start("timer", clock.now() + HOUR, run_id="r1")
    wrong.force_cancel("r1")
    assert wrong.start("timer", clock.now() + HOUR, run_id="r1") == "r1"
    assert story(wrong) == "C S wc:w RX"


# --- routing --------------------------------------------------------------------------------------------------------


@pytest.fixture
def two_due(store, waiting, clock):
    waiting("r1", "b1")
    waiting("r2", "b2")
    clock.advance(HOUR)
    return store


def router(**routes):
    made = RuntimeBuildTaskRouter()
    for build, queue in routes.items():
        made = made.with_route(build, queue)
    return made


def test_scenario_115_each_build_gets_its_task_and_finishes_its_run(two_due):
    queues = {"b1": Queue(), "b2": Queue()}
    report = FlowScheduler(of_build(two_due, "b1"), router(**queues)).tick()
    assert report.run_ids == ["r1", "r2"]
    for build, run_id in (("b1", "r1"), ("b2", "r2")):
        (task,) = queues[build].take()
        assert task == DriveRun(run_id)
        worker = of_build(two_due, build)
        assert handle_task(worker, task).resumed_waits == ((run_id, "w"),)
        assert story(worker, run_id) == "C S wc:w wk:w RC"


def test_scenario_116_one_missing_route_stops_the_tick_before_anything_is_sent(two_due):
    routed = Queue()
    scheduler = FlowScheduler(of_build(two_due, "b1"), router(b1=routed))
    with pytest.raises(RuntimeBuildRouteNotFoundError) as caught:
        scheduler.tick()
    assert caught.value.required == "b2"
    assert routed.tasks == []
    complete = FlowScheduler(of_build(two_due, "b1"), router(b1=routed, b2=Queue()))
    assert complete.tick().run_ids == ["r1", "r2"]  # nothing was taken either


def test_scenario_116_nothing_is_sent_however_many_are_due(store, waiting, clock):
    for number in range(120):
        waiting(f"r{number:03}")
    waiting("zz", "b2")
    clock.advance(HOUR)
    routed = Queue()
    with pytest.raises(RuntimeBuildRouteNotFoundError):
        FlowScheduler(of_build(store, "b1"), router(b1=routed)).tick()
    assert routed.tasks == []


@pytest.mark.parametrize("by", ["argument", "option"])
def test_a_missing_route_can_be_skipped(two_due, by):
    """Section 14: ``on_missing_route="skip"`` dispatches the rest and reports the runs left."""
    routed, engine = Queue(), of_build(two_due, "b1")
    if by == "option":
        engine.services.options = Options(build={"on_missing_route": "skip"})
        scheduler = FlowScheduler(engine, router(b1=routed))
    else:
        scheduler = FlowScheduler(engine, router(b1=routed), on_missing_route="skip")
    report = scheduler.tick()
    assert routed.take() == [DriveRun("r1")]
    assert report.run_ids == ["r1"]
    assert [(run.run_id, run.build) for run in report.left] == [("r2", "b2")]
    assert report.has_due_work


def test_a_run_left_for_its_build_says_why_and_is_found_again(two_due, clock):
    scheduler = FlowScheduler(of_build(two_due, "b1"), router(b1=Queue()), on_missing_route="skip")
    scheduler.tick()
    assert two_due.row("r2").wake_reason == "no_worker"
    clock.advance(timedelta(minutes=1))
    queue = Queue()
    assert "r2" in FlowScheduler(of_build(two_due, "b2"), router(b1=Queue(), b2=queue)).tick().run_ids
    assert queue.take() == [DriveRun("r2")]


def test_scenario_118_a_worker_of_the_wrong_build_leaves_the_run_to_its_own(two_due, clock):
    wrong = of_build(two_due, "b9")
    before = two_due.row("r1")
    with pytest.raises(RuntimeBuildUnavailableError):
        handle_task(wrong, DriveRun("r1"))
    after = two_due.row("r1")
    assert story(wrong) == "C S wc:w"
    assert after.lease_expires_at is None
    assert after.lost_leases == before.lost_leases
    assert (after.wake_reason, after.blocked_code) == ("no_worker", "")
    right = of_build(two_due, "b1")
    assert handle_task(right, DriveRun("r1")).resumed_waits == (("r1", "w"),)
    assert story(right) == "C S wc:w wk:w RC"


def test_scenario_118_the_wrong_build_never_takes_a_lease_away(store, waiting, clock):
    """A slow driver whose lease has just expired may still come back, if nobody who can drive has taken over."""
    waiting()
    row = store.claim("r1", lease=timedelta(seconds=30))
    clock.advance(timedelta(seconds=31))
    with pytest.raises(RuntimeBuildUnavailableError):
        of_build(store, "b9").resume_scheduled_run("r1")
    now = store.row("r1")
    assert (now.lease_epoch, now.lost_leases) == (row.lease_epoch, 0)
    assert store.renew(row, lease=timedelta(seconds=30))


def test_scenario_119_a_task_of_the_run_is_routed_by_its_build(store, waiting):
    waiting("r1", "b1")
    engine, b1, b2 = of_build(store, "b1"), Queue(), Queue()
    routes = router(b1=b1, b2=b2)
    routes.dispatch_for_run(engine, "r1", ResumeWait("r1", "w"))
    assert (b1.take(), b2.take()) == ([ResumeWait("r1", "w")], [])


@pytest.mark.parametrize(
    "task",
    [DriveRun("other"), ResumeDueWaits(None), ResumeHookByToken("tok")],  # type: ignore[arg-type]
    ids=["of another run", "due scan", "by token"],
)
def test_scenario_119_any_other_task_is_refused(store, waiting, task):
    waiting("r1", "b1")
    queue = Queue()
    with pytest.raises(InvalidTransitionError) as caught:
        router(b1=queue).dispatch_for_run(of_build(store, "b1"), "r1", task)
    assert "tok" not in str(caught.value).split()
    assert queue.tasks == []


def test_scenario_119_an_unknown_run_and_a_missing_route(store, waiting):
    waiting("r1", "b1")
    engine = of_build(store, "b1")
    with pytest.raises(RunNotFoundError):
        router(b1=Queue()).dispatch_for_run(engine, "r9", DriveRun("r9"))
    with pytest.raises(RuntimeBuildRouteNotFoundError) as caught:
        router(b2=Queue()).dispatch_for_run(engine, "r1", DriveRun("r1"))
    assert caught.value.required == "b1"


def test_a_route_is_registered_once():
    routes = router(b1=Queue()).with_unpinned_route(Queue())
    for again in (lambda: routes.with_route("b1", Queue()), lambda: routes.with_unpinned_route(Queue())):
        with pytest.raises(ConfigurationError):
            again()
    with pytest.raises(InvalidRuntimeBuildIdError):
        routes.with_route("no spaces", Queue())


def test_what_names_no_build_goes_to_the_unpinned_route():
    unpinned = Queue()
    routes = router(b1=Queue()).with_unpinned_route(unpinned)
    assert routes.has_route(None)
    routes.dispatch(DriveRun("r1"))
    assert unpinned.take() == [DriveRun("r1")]
    with pytest.raises(RuntimeBuildRouteNotFoundError):
        router(b1=Queue()).dispatch(DriveRun("r1"))


def test_a_process_that_knows_no_builds_leaves_a_pinned_run_untouched(store: EventStore) -> None:
    workflow("pinned")(lambda ctx: ctx.complete())
    owner = FlowEngine(store, RegistryRuntime(), builds=RuntimeBuildCompatibility("v1"))
    run_id = owner.start("pinned")
    before = store.row(run_id)
    stranger = FlowEngine(store, RegistryRuntime())
    for _ in range(3):
        with pytest.raises(RuntimeBuildUnavailableError):
            stranger.resume_scheduled_run(run_id)
    after = store.row(run_id)
    assert (after.lease_epoch, after.dispatches, after.wake_at) == (0, before.dispatches, before.wake_at)
    assert after.wake_reason == "no_worker"
    assert owner.drive(run_id).status == "completed"
