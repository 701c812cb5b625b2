"""The number of queries does not grow with what there is."""

from __future__ import annotations

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from rest_framework.test import APIClient

from flow_app.engine import FlowEngine
from tests.api.calls import get, post

pytestmark = pytest.mark.django_db(transaction=True)


def fill(engine: FlowEngine, count: int, *, prefix: str) -> None:
    for number in range(count):
        engine.start("approval", {"bar": "x"}, run_id=f"{prefix}{number}", labels={"team": "red"}, subject="s")


@pytest.mark.parametrize(
    ("path", "most"),
    [
        ("", 0),
        ("workflows", 0),
        ("summary", 2),
        ("runs", 3),
        ("runs?label=team:red&status=suspended&subject=s", 3),
        ("hooks", 1),
        ("hooks?include=payload&label=team:red", 1),
        ("runs/a0", 3),
        ("runs/a0?include=payload", 4),
        ("runs/a0/events?include=payload", 2),
        ("runs/a0/suspensions", 3),
        ("runs/a0/hooks?include=payload", 2),
        ("runs/a0/hooks/decision?include=payload", 1),
        ("runs/a0/progress?include=payload", 2),
        ("runs/a0/children?include=payload", 2),
    ],
)
def test_looking_takes_as_many_queries_for_much_as_for_little(api, engine, path: str, most: int) -> None:
    def queries() -> int:
        with CaptureQueriesContext(
            connection,
        ) as captured:
            assert get(api, path).status_code == 200
        return len(captured)

    fill(engine, 1, prefix="a")
    get(api, "runs?include=payload")  # permissions are read once for each user
    few = queries()
    fill(engine, 20, prefix="b")
    for number in range(20):
        body = {"progress_id": f"p{number}", "completed": number}
        post(api, "runs/a0/progress", body)
        post(api, "runs/a0/children", {"reference_id": f"c{number}", "kind": "k", "operation_id": "o"})
    assert (queries(), few) == (few, few)
    assert few <= most


def test_a_door_takes_few_queries(api: APIClient, anonymous: APIClient, engine, django_assert_max_num_queries) -> None:
    engine.start("approval", {"token": "tok"}, run_id="r1")
    with django_assert_max_num_queries(1):
        get(anonymous, "callbacks/tok")
    post(anonymous, "callbacks/tok", 1)
    with django_assert_max_num_queries(2):
        get(anonymous, "callbacks/tok")
    with django_assert_max_num_queries(2):
        get(anonymous, "callbacks/nope")


def test_pages_carry_no_payload_that_was_not_asked_for(api, engine) -> None:
    engine.start("echo", "x" * 100_000, run_id="r1")
    for path in ("runs", "runs/r1", "runs/r1/events", "runs/r1/hooks"):
        assert len(get(api, path).content) < 10_000
    with CaptureQueriesContext(connection) as captured:
        get(api, "runs/r1/events")
    assert not any('"flow_app_event"."payload"' in query["sql"] for query in captured)
