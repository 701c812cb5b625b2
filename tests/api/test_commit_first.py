"""The decision is committed before the answer is sent; whatever the drive meets after it is nobody's answer."""

from __future__ import annotations

import pytest
from celery import Task
from kombu.exceptions import OperationalError
from rest_framework.test import APIClient

from flow_app import get_engine
from flow_app.engine import FlowEngine
from flow_app.errors import RuntimeBuildRouteNotFoundError
from flow_app.models import Event, Run
from tests.api.calls import delete, get, post, refused, start

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(params=["token", "id"])
def send(request, anonymous: APIClient, api: APIClient):
    """Answer the hook of r1, by either door."""
    if request.param == "token":
        return lambda payload: post(anonymous, "callbacks/token-of-the-failing", payload)
    return lambda payload: post(api, "runs/r1/hooks/decision", {"payload": payload})


def test_an_answer_stands_though_the_drive_after_it_fails(api: APIClient, send) -> None:
    start(api, "fails_after_answer", run_id="r1")
    assert [send(1).status_code for _ in range(2)] == [200, 200]
    refused(send(2), 409, "hook_conflict")
    run = get(api, "runs/r1").json()
    assert (run["status"], run["blocked"]["code"]) == ("running", "runtime")
    assert Event.objects.filter(type="hook_received").count() == 1


def test_a_start_stands_though_the_drive_after_it_fails(api: APIClient) -> None:
    response = post(api, "runs", {"workflow": "broken", "input": 1, "run_id": "r1"})
    assert response.status_code == 201
    assert "ValueError: no way: 1" in response.json()["blocked"]["text"]
    assert post(api, "runs", {"workflow": "broken", "input": 1, "run_id": "r1"}).status_code == 200


class BrokerIsDown:
    """Nothing gets through."""

    def __init__(self, error: Exception) -> None:
        self.error = error

    def dispatch(self, task: object) -> None:
        raise self.error

    def has_route(self, build: str | None) -> bool:
        return True

    def dispatch_for_build(self, build: str | None, task: object) -> None:
        raise self.error


@pytest.mark.parametrize("error", [OperationalError("down"), OSError("no"), RuntimeBuildRouteNotFoundError(None)])
def test_all_verbs_work_while_the_broker_is_down(
    api: APIClient, anonymous: APIClient, engine: FlowEngine, monkeypatch, error: Exception
) -> None:
    start(api, "approval", {"token": "tok"}, run_id="r1")
    start(api, "approval", run_id="r2")
    monkeypatch.setattr(engine.services, "dispatcher", BrokerIsDown(error))
    assert post(api, "runs", {"workflow": "approval", "run_id": "r3"}).status_code == 201
    assert post(api, "runs", {"workflow": "approval", "run_id": "r3"}).status_code == 200
    assert post(anonymous, "callbacks/tok", 1).status_code == 200
    assert post(anonymous, "callbacks/tok", 1).status_code == 200
    assert delete(api, "runs/r2/hooks/decision").status_code == 200
    assert post(api, "runs/r2/pause").status_code == 200
    assert post(api, "runs/r2/unpause").status_code == 202
    assert post(api, "runs/r2/run-now").status_code == 202
    assert post(api, "runs/r2/cancel").status_code == 202
    assert post(api, "runs/r3/force-cancel").status_code == 200
    assert all(run.wake_at is not None for run in Run.objects.filter(run_id__in=("r1", "r2")))  # they are found again


def test_celery_without_a_broker_changes_no_answer(api: APIClient, anonymous: APIClient, settings, monkeypatch) -> None:
    sent: list[object] = []

    def no_broker(task: Task, args: object, kwargs: object, **options: object) -> None:
        sent.append(args)
        raise OperationalError("no broker")

    settings.FLOW_APP = {"DISPATCHER": "flow_app.dispatch.CeleryDispatcher"}
    monkeypatch.setattr(Task, "apply_async", no_broker)
    assert post(api, "runs", {"workflow": "approval", "input": {"token": "tok"}, "run_id": "r1"}).status_code == 201
    get_engine().drive("r1")  # a worker's tick
    assert post(anonymous, "callbacks/tok", 1).status_code == 200
    assert post(anonymous, "callbacks/tok", 1).status_code == 200
    assert post(api, "runs/r1/cancel").status_code == 202
    assert sent == [("r1",)] * 4


def test_an_answer_that_was_lost_is_repeated_and_wakes_the_run(
    api: APIClient, anonymous: APIClient, engine: FlowEngine, monkeypatch
) -> None:
    """The answer committed, and neither the caller nor the broker ever heard of it."""
    start(api, "approval", {"token": "tok"}, run_id="r1")
    with monkeypatch.context() as patch:
        patch.setattr(engine.services, "dispatcher", BrokerIsDown(OSError()))
        post(anonymous, "callbacks/tok", 1)
    assert get(api, "runs/r1").json()["status"] == "suspended"
    assert post(anonymous, "callbacks/tok", 1).status_code == 200
    assert get(api, "runs/r1").json()["status"] == "completed"


@pytest.mark.parametrize("path", ["runs/r1/hooks/decision", "runs/r1/cancel"])
def test_what_no_worker_can_run_is_refused_for_now(api: APIClient, settings, path: str) -> None:
    start(api, "approval", run_id="r1")
    settings.FLOW_APP = {"BUILD": {"current": "v2"}}
    body = {"payload": 1} if "hooks" in path else {}
    response = post(api, path, body)
    refused(response, 503, "runtime_build_unavailable")
    assert int(response["Retry-After"]) > 0
    assert get_engine().row("r1").last_sequence == 4


def test_a_project_with_a_transaction_round_each_request(api: APIClient, anonymous: APIClient, monkeypatch) -> None:
    from django.db import connection

    monkeypatch.setitem(connection.settings_dict, "ATOMIC_REQUESTS", True)
    start(api, "approval", {"token": "tok"}, run_id="r1")
    assert post(anonymous, "callbacks/tok", 1).status_code == 200
    refused(post(anonymous, "callbacks/tok", 2), 409, "hook_conflict")
    assert get(api, "runs/r1").json()["status"] == "completed"
