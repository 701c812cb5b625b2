"""Builds over Celery queues: new runs are pinned, each goes to its own workers, none to a queue that nobody reads."""

from __future__ import annotations

import pytest

from flow_app import get_engine, step, workflow
from flow_app.core.tasks import DriveRun, RunStep
from flow_app.dispatch import CeleryDispatcher, FlowScheduler, RuntimeBuildTaskRouter
from flow_app.errors import RunNotFoundError, RuntimeBuildRouteNotFoundError, RuntimeBuildUnavailableError
from project.celery import app as project_app

QUEUES = {"v1": "flow-v1", "v2": "flow-v2"}


@pytest.fixture
def deploy(flow_app):
    """The process of a build: its settings are in force from here on."""

    def deploy(current, **build):
        flow_app(BUILD={"current": current, **build})
        return get_engine()

    return deploy


@pytest.fixture
def asks():
    @workflow("asks")
    def asks(ctx):
        if not ctx.hook_received("answer"):
            return ctx.create_hook("answer", f"token-of-{ctx.run_id}")
        return ctx.complete(ctx.hook_payload("answer"))

    return asks


def args_in(post, queue):
    return [sent.args for sent in post.take(queue)]


def test_a_new_run_is_pinned_to_the_current_build_and_goes_to_its_queue(engine, deploy, post, asks):
    run_id = deploy("v2", routes=QUEUES).start(asks)
    assert get_engine().runtime_build_id(run_id) == "v2"
    assert post.queues() == {"flow-v2"}
    assert args_in(post, "flow-v2") == [(run_id,)]


def test_without_routes_the_project_s_own_routing_stands(engine, deploy, post, asks):
    run_id = deploy("v2").start(asks)
    assert get_engine().runtime_build_id(run_id) == "v2"
    assert args_in(post, "celery") == [(run_id,)]


def test_field_report_41_a_run_of_the_old_build_is_answered_by_the_new_one_and_waits_for_its_worker(
    engine, deploy, post, asks
):
    old = deploy("v1", routes=QUEUES).start(asks)
    post.deliver_all("flow-v1")
    new_process = deploy("v2", routes=QUEUES)
    assert new_process.resume_hook(old, "answer", "yes")  # accepted and stored
    assert post.queues() == {"flow-v1"}
    (waiting,) = post.take("flow-v1")
    post.deliver(waiting)  # a worker of v2 reads the wrong queue: it touches nothing
    row = new_process.row(old)
    assert (row.wake_reason, row.blocked_code, row.build) == ("no_worker", "", "v1")
    deploy("v1", routes=QUEUES)
    post.deliver(waiting)
    assert get_engine().snapshot(old).output == "yes"


def test_two_generations_side_by_side_each_run_is_driven_by_its_own(engine, deploy, post):
    by = {}

    @workflow("release")
    def release(ctx):
        by.setdefault(ctx.run_id, get_engine().runtime_build_compatibility().current)
        return ctx.complete()

    runs = {build: [deploy(build, routes=QUEUES).start(release) for _ in range(5)] for build in QUEUES}
    for build in QUEUES:
        deploy(build, routes=QUEUES)
        post.deliver_all(QUEUES[build])
    assert by == {run_id: build for build, run_ids in runs.items() for run_id in run_ids}


@pytest.mark.parametrize(
    ("build", "options"),
    [("v1", {"compatible": ["v1"]}), (None, {"accept_unpinned": True})],
    ids=["a compatible build", "unpinned runs"],
)
def test_what_the_current_build_may_run_needs_no_queue_of_its_own(engine, deploy, post, asks, build, options):
    dispatcher = deploy("v2", routes={"v2": "flow-v2"}, **options).services.dispatcher
    assert dispatcher.has_route(build)
    dispatcher.dispatch_for_build(build, DriveRun("r1"))
    assert post.queues() == {"flow-v2"}


def test_a_step_of_its_own_goes_to_the_queue_of_its_run_s_build_or_to_its_own(engine, deploy, post):
    dispatcher = deploy("v2", routes=QUEUES).services.dispatcher
    dispatcher.dispatch_step(RunStep("r1", "s", 1), build="v1", queue=None)
    dispatcher.dispatch_step(RunStep("r1", "s", 1), build="v1", queue="gpu")
    assert post.queues() == {"flow-v1", "gpu"}


def test_a_batch_travels_on_the_queue_of_its_run_s_build_and_joins(engine, deploy, post):
    @step("half")
    def half(ctx):
        return ctx.input / 2

    @workflow("halves")
    def halves(ctx):
        if not ctx.step_completed("a") or not ctx.step_completed("b"):
            return ctx.schedule_steps([ctx.step("a", half, 2), ctx.step("b", half, 4)])
        return ctx.complete([ctx.step_output("a"), ctx.step_output("b")])

    run_id = deploy("v1", routes=QUEUES).start(halves)
    sent = post.deliver_all("flow-v1")
    assert sorted((each.task, each.args) for each in sent) == [
        ("flow_app.drive_run", (run_id,)),  # keeps b, and the one who completes a drives on
        ("flow_app.run_step", (run_id, "a", 1)),
    ]
    assert post.queues() == set()
    assert get_engine().snapshot(run_id).output == [1, 2]


# --- a route is missing ---------------------------------------------------------------------------------------------


@pytest.fixture
def stranded(engine, deploy, post, asks, overdue):
    """A run of v1 and one of v2, both due, seen by a process of v2 that knows no way to v1."""

    def stranded(**build):
        ids = [deploy(build, routes=QUEUES).start(asks, run_id=f"of-{build}") for build in QUEUES]
        post.take("flow-v1")
        post.take("flow-v2")
        overdue()
        return deploy("v2", routes={"v2": "flow-v2"}, **build), ids

    return stranded


def test_one_missing_route_stops_the_tick_before_anything_is_sent(stranded, post):
    engine, _ = stranded()
    with pytest.raises(RuntimeBuildRouteNotFoundError) as caught:
        FlowScheduler(engine).tick()
    assert caught.value.required == "v1"
    assert post.queues() == set()
    project_app.tasks["flow_app.tick"]()  # in a worker it is logged
    assert post.queues() == set()


def test_or_the_others_are_sent_and_the_run_says_what_it_waits_for(stranded, post):
    engine, (old, new) = stranded(on_missing_route="skip")
    project_app.tasks["flow_app.tick"]()
    assert post.queues() == {"flow-v2"}
    assert args_in(post, "flow-v2") == [(new,)]
    assert engine.row(old).wake_reason == "no_worker"


def test_a_run_that_no_worker_could_take_is_not_started(engine, deploy, post, asks):
    web = deploy("v2", routes={"v2": "flow-v2"})
    with pytest.raises(RuntimeBuildUnavailableError):
        web.start(asks, run_id="r1", build="v9")
    with pytest.raises(RunNotFoundError):
        web.row("r1")
    assert post.queues() == set()


@pytest.mark.parametrize("task", [DriveRun("r1"), RunStep("r1", "s", 1)], ids=lambda task: task.type)
def test_no_route_no_message(engine, deploy, post, task):
    dispatcher = deploy("v2", routes={"v2": "flow-v2"}).services.dispatcher
    assert not dispatcher.has_route("v1")
    with pytest.raises(RuntimeBuildRouteNotFoundError):
        dispatcher.dispatch_for_build("v1", task)
    if isinstance(task, RunStep):
        with pytest.raises(RuntimeBuildRouteNotFoundError):
            dispatcher.dispatch_step(task, build="v1", queue=None)
    assert post.queues() == set()


# --- a router made by hand ------------------------------------------------------------------------------------------


def test_the_router_over_celery_queues(engine, deploy, post, asks):
    web = deploy("v2", routes=QUEUES)
    run_id = web.start(asks)
    post.take("flow-v2")
    router = RuntimeBuildTaskRouter().with_unpinned_route(CeleryDispatcher(web))
    for build in QUEUES:
        router.with_route(build, CeleryDispatcher(web, queue=f"mine-{build}"))
    router.dispatch_for_run(web, run_id, DriveRun(run_id))
    assert post.queues() == {"mine-v2"}
    assert args_in(post, "mine-v2") == [(run_id,)]
    for send in (router.dispatch_for_build, lambda build, step: router.dispatch_step(step, build=build, queue=None)):
        send("v1", RunStep("r1", "s", 1))
        assert [sent.task for sent in post.take("mine-v1")] == ["flow_app.run_step"]
    router.dispatch_step(RunStep("r1", "s", 1), build="v1", queue="gpu")
    assert post.queues() == {"gpu"}


def test_a_route_of_a_router_needs_no_leave_of_the_process_s_own_builds(engine, deploy, post):
    route = CeleryDispatcher(deploy("v2"), queue="mine-v1")
    RuntimeBuildTaskRouter().with_route("v1", route).dispatch_step(RunStep("r1", "s", 1), build="v1", queue=None)
    assert post.queues() == {"mine-v1"}


def test_the_scheduler_over_a_router(engine, deploy, post, asks, overdue):
    web = deploy("v2", routes=QUEUES)
    run_id = web.start(asks)
    post.take("flow-v2")
    overdue()
    router = RuntimeBuildTaskRouter().with_route("v2", CeleryDispatcher(web, queue="mine-v2"))
    assert FlowScheduler(web, router).tick().run_ids == [run_id]
    assert post.queues() == {"mine-v2"}
