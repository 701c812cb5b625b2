"""The Celery settings that bite are said at start-up, each with a line that mends it."""

from __future__ import annotations

import pytest
from celery import Celery, _state
from django.core.checks import run_checks
from kombu import Queue

from flow_app import beat, step
from flow_app.checks_celery import check_celery
from flow_app.core.ports import FlowTaskDispatcher
from flow_app.dispatch.celery import CeleryDispatcher

GOOD = {"broker_url": "redis://localhost:6379/0", "beat_schedule": beat.schedule()}


class OwnDispatcher(CeleryDispatcher):
    """A project's own."""


def make_dispatcher(engine) -> FlowTaskDispatcher:
    return CeleryDispatcher(engine, queue="flow")


@pytest.fixture
def found(flow_app, use_app):
    """The warnings under such settings, by number."""

    def found(build=None, **values):
        app = Celery("checked", set_as_current=False)
        app.conf.update({**GOOD, **values})
        use_app(app)
        if build is not None:
            flow_app(BUILD=build)
        return {message.id: message for message in check_celery()}

    return found


def test_good_settings_are_left_alone(found):
    assert found() == {}
    assert not [message for message in run_checks() if message.id.startswith("flow_app.W01")]


def test_where_celery_does_not_dispatch_nothing_is_asked(found, settings):
    settings.FLOW_APP = {}
    assert found(task_always_eager=True) == {}
    settings.FLOW_APP = {"DISPATCHER": "no.such.path"}
    assert found(task_always_eager=True) == {}


@pytest.mark.parametrize("name", ["OwnDispatcher", "make_dispatcher"])
def test_a_dispatcher_of_the_project_s_own_is_recognised(found, flow_app, name):
    flow_app(DISPATCHER=f"{__name__}.{name}")
    assert set(found(task_always_eager=True)) == {"flow_app.W011"}


BITING = [
    ("W011", {"task_always_eager": True}),
    ("W012", {"broker_url": "memory://"}),
    ("W013", {"task_time_limit": 300}),
    ("W013", {"task_soft_time_limit": 300}),
    ("W015", {"beat_schedule": {}}),
    ("W015", {"beat_schedule": beat.start("nightly", "report", "0 3 * * *")}),
    ("W016", {"beat_schedule": {"tick": {"task": "flow_app.tick", "schedule": 5}}}),
    ("W017", {"broker_transport_options": {"visibility_timeout": 60}}),
    ("W017", {"broker_transport_options": {"visibility_timeout": 90}}),
    ("W018", {"build": {"current": "v2", "routes": {"v1": "flow-v1"}}}),
    ("W019", {"build": {"current": "v2", "routes": {"v2": "flow-v2"}}, "task_create_missing_queues": False}),
]


@pytest.mark.parametrize(("number", "settings_"), BITING, ids=[f"{n}-{next(iter(s))}" for n, s in BITING])
def test_a_setting_that_bites_is_said_with_the_line_that_mends_it(found, number, settings_):
    messages = found(**settings_)
    assert set(messages) == {f"flow_app.{number}"}
    (message,) = messages.values()
    assert " = " in message.hint


@pytest.mark.parametrize(
    "settings_",
    [
        {"task_time_limit": 86_400},
        {"broker_transport_options": {"visibility_timeout": 91}},
        {"broker_url": "amqp://localhost", "broker_transport_options": {"visibility_timeout": 1}},
        {"broker_url": ["sentinel://a:1", "sentinel://b:1"]},
        {"beat_schedule": {"t": {"task": "flow_app.tick", "schedule": 5, "options": {"expires": 9}}}},
        {"build": {"current": "v2", "routes": {"v1": "flow-v1", "v2": "flow-v2"}}},
        {"build": {"routes": {"v1": "flow-v1"}}},  # it starts unpinned runs, which go where the project routes
    ],
    ids=["hours", "longer", "rabbitmq", "sentinels", "expires", "routes", "no current build"],
)
def test_what_does_not_bite_is_not_said(found, settings_):
    assert found(**settings_) == {}


def test_a_short_visibility_is_measured_by_the_lease_and_the_slice(found, flow_app):
    flow_app(LEASE=1200, DRIVE_SLICE={"steps": 1, "seconds": 2400})
    assert set(found()) == {"flow_app.W017"}  # Redis' own hour is not enough


def test_memory_is_a_broker_for_one_process_alone(found, settings):
    settings.DEBUG = True
    assert found(broker_url="memory://") == {}


@pytest.mark.parametrize(
    ("number", "annotation"), [("W013", {"time_limit": 60}), ("W014", {"reject_on_worker_lost": True})]
)
def test_annotations_of_our_tasks_are_looked_at(flow_app, use_app, number, annotation):
    app = Celery("annotated", broker="redis://localhost", set_as_current=False)
    app.conf.beat_schedule = beat.schedule()
    app.conf.task_annotations = {"flow_app.drive_run": annotation}
    use_app(app)
    (message,) = check_celery()
    assert message.id == f"flow_app.{number}"
    assert "CELERY_TASK_ANNOTATIONS" in message.hint


def test_an_app_that_only_the_main_thread_finds(found, monkeypatch):
    """``Celery(fixups=[])`` without ``set_default()``: threads of a web server would send to amqp://localhost."""
    assert found() == {}
    monkeypatch.setattr(_state, "default_app", None)
    (message,) = check_celery()
    assert (message.id, "set_default" in message.hint) == ("flow_app.W010", True)


def test_a_project_that_never_loads_its_celery_app(flow_app, monkeypatch):
    monkeypatch.setattr(_state, "default_app", None)
    monkeypatch.setattr(_state._tls, "current_app", None)
    assert "flow_app.W010" in {message.id for message in check_celery()}


def test_a_queue_that_a_step_names_must_be_there_too(found):
    step("render", queue="gpu")(lambda: None)
    assert found() == {}
    assert "to gpu:" in found(task_create_missing_queues=False)["flow_app.W019"].msg
    assert found(task_create_missing_queues=False, task_queues=[Queue("gpu")]) == {}
