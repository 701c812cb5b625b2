"""Two at once: one decision, and the loser is told which stands."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from django.db import connections
from rest_framework.test import APIClient

from flow_app import get_engine
from flow_app.models import Event
from tests.api.calls import post, start

pytestmark = pytest.mark.django_db(transaction=True)

Call = Callable[[APIClient], Any]


@pytest.fixture(autouse=True)
def _unthrottled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("flow_app.api.throttling.TokenThrottle.get_rate", lambda throttle: None)


@pytest.fixture
def together(user_with):
    """Make calls from threads of their own, all at once; their answers in order."""
    ben = user_with("resume_hook", "view_hook", "cancel_run", "view_run", "start_run", name="ben")
    pool = ThreadPoolExecutor(4)

    def make(*calls: Call) -> list[Any]:
        barrier = threading.Barrier(len(calls))

        def one(call: Call) -> Any:
            client = APIClient()
            client.force_authenticate(ben)
            barrier.wait(30)
            return call(client)

        return [future.result(60) for future in [pool.submit(one, call) for call in calls]]

    yield make
    barrier = threading.Barrier(4)
    for future in [pool.submit(lambda: (barrier.wait(30), connections.close_all())) for _ in range(4)]:
        future.result(60)
    pool.shutdown()


def answer(run_id: str, payload: Any, *, by_token: bool) -> Call:
    if by_token:
        return lambda client: post(APIClient(), f"callbacks/token-{run_id}", payload)
    return lambda client: post(client, f"runs/{run_id}/hooks/decision", {"payload": payload})


def received(run_id: str) -> int:
    return Event.objects.filter(run__run_id=run_id, type="hook_received").count()


@pytest.mark.slow
def test_two_approvers_two_hundred_times(api: APIClient, together) -> None:
    for number in range(200):
        run_id = f"r{number}"
        get_engine().start("approval", {"token": f"token-{run_id}"}, run_id=run_id)
        yes = answer(run_id, {"approved": True}, by_token=number % 2 == 0)
        no = answer(run_id, {"approved": False}, by_token=number % 4 < 2)
        answers = together(yes, no)
        assert sorted(response.status_code for response in answers) == [200, 409], number
        won = answers[0].status_code == 200
        loser = answers[1] if won else answers[0]
        assert loser.json()["standing"]["payload"] == {"approved": won}
        assert received(run_id) == 1
        assert get_engine().snapshot(run_id).output == {"decision": {"approved": won}}


def test_a_double_click_is_one_decision(api: APIClient, together) -> None:
    for number in range(10):
        run_id = f"r{number}"
        start(api, "approval", {"token": f"token-{run_id}"}, run_id=run_id)
        calls = [answer(run_id, {"approved": True}, by_token=by_token) for by_token in (True, True, False, False)]
        assert [response.status_code for response in together(*calls)] == [200] * 4
        assert received(run_id) == 1


def test_an_answer_races_a_cancellation(api: APIClient, together) -> None:
    for number in range(20):
        run_id = f"r{number}"
        start(api, "approval", {"token": f"token-{run_id}"}, run_id=run_id)
        answered, cancelled = together(
            answer(run_id, 1, by_token=number % 2 == 0),
            lambda client, run_id=run_id: post(client, f"runs/{run_id}/cancel", {}),
        )
        assert answered.status_code in (200, 410)
        assert cancelled.status_code in (200, 202)
        assert received(run_id) == (answered.status_code == 200)
        if answered.status_code == 410:
            assert answered.json()["code"] == "hook_cancelled"
        assert get_engine().snapshot(run_id).status.is_terminal


def test_a_run_started_by_many_is_new_to_one(api: APIClient, together) -> None:
    for number in range(10):
        body = {"workflow": "approval", "input": number, "run_id": f"r{number}"}
        calls = [lambda client, body=body: post(client, "runs", body)] * 4
        assert sorted(response.status_code for response in together(*calls)) == [200, 200, 200, 201]
