"""Do drives and steps go to the same workers? Only then does one of them go on with what it would send."""

from __future__ import annotations

import pytest
from celery import Celery

from flow_app import get_engine
from flow_app.dispatch import InlineDispatcher, RuntimeBuildTaskRouter

STEPS = {"flow_app.run_step": {"queue": "steps"}}
BOTH = {"flow_app.*": {"queue": "flow"}}


def by_name(name, args, kwargs, options, task=None, **more):
    return {"queue": "steps"} if name == "flow_app.run_step" else None


@pytest.mark.parametrize(
    ("conf", "same"),
    [
        ({}, True),
        ({"task_routes": BOTH}, True),
        ({"task_routes": STEPS}, False),
        ({"task_routes": (by_name,)}, False),
        ({"task_annotations": {"flow_app.run_step": {"queue": "steps"}}}, False),
        ({"task_annotations": {"flow_app.*": {"queue": "flow"}}}, True),
        ({"task_annotations": {"flow_app.drive_run": {"routing_key": "drives"}}}, False),
        ({"task_annotations": {"flow_app.run_step": {"rate_limit": "10/m"}}}, False),
        ({"task_always_eager": True}, False),
    ],
    ids=[
        "default",
        "one-route",
        "two-routes",
        "router",
        "annotated",
        "all-annotated",
        "routing-key",
        "rate-limit",
        "eager",
    ],
)
def test_as_the_project_routes(engine, use_app, conf, same):
    app = Celery("other", broker="memory://", set_as_current=False)
    app.conf.update(conf)
    use_app(app)
    assert engine.services.same_workers("r", None) is same


def test_a_router_asks_the_route_of_the_build(engine):
    celery, inline = engine.services.dispatcher, InlineDispatcher(engine)
    router = RuntimeBuildTaskRouter().with_route("v1", celery).with_unpinned_route(inline)
    assert [router.same_workers("r", build) for build in ("v1", None, "v2")] == [True, False, False]


def test_a_queue_of_the_build_is_for_both(flow_app, use_app):
    flow_app(BUILD={"current": "v1", "routes": {"v1": "flow-v1"}})
    app = Celery("other", broker="memory://", set_as_current=False)
    app.conf.task_routes = STEPS
    use_app(app)
    assert get_engine().services.same_workers("r", "v1") is True
