"""Each filter, alone, finds its runs by an index, though none of the latest runs is among them."""

from __future__ import annotations

import pytest
from django.contrib.auth import get_user_model
from django.utils import timezone
from rest_framework.test import APIClient

from flow_app.models import Run
from tests.admin.looking import stories
from tests.api.calls import get
from tests.store.plans import analyze, plans

pytestmark = pytest.mark.django_db(transaction=True)

OLD = 5
_RUN = ("FROM flow_app_run", 'FROM "flow_app_run"', "FROM `flow_app_run`")


@pytest.fixture(autouse=True)
def _many() -> None:
    """Of many runs, the first few are of an old build and version; of those that are open, they alone are paused."""
    now = timezone.now()
    stories.many_runs(OLD, prefix="old", version="1", build="old", status="suspended", paused_at=now, blocked_since=now)
    stories.many_runs(3000, prefix="new", version="2", build="new")
    analyze(Run._meta.db_table)


def plan_of_keys(asked: plans) -> str:
    """How the database finds the runs of the page."""
    found = [
        text
        for (sql, _params), text in zip(asked.asked, asked.texts, strict=True)
        if any(table in sql for table in _RUN) and "LIMIT" in sql and "WHERE" in sql
    ]
    return found[0]


@pytest.mark.parametrize(
    ("query", "index"),
    [
        ("?build=old", "flow_run_build_idx"),
        ("?version=1", "flow_run_version_idx"),
        ("?workflow=order&version=1", "flow_run_"),
        ("?attention=paused", "flow_run_paused_idx"),
        ("?attention=blocked", "flow_run_stuck_idx"),
    ],
)
def test_the_admin(boss, query: str, index: str) -> None:
    with plans() as asked:
        page = boss.get(stories.runs(query))
    assert len(page.context["cl"].result_list) == OLD
    assert index in plan_of_keys(asked)


@pytest.mark.parametrize(
    ("query", "index"),
    [
        ("build=old", "flow_run_build_idx"),
        ("version=1", "flow_run_version_idx"),
        ("blocked=true", "flow_run_stuck_idx"),
    ],
)
def test_the_api(query: str, index: str) -> None:
    client = APIClient()
    client.force_authenticate(get_user_model().objects.create_superuser("root"))
    with plans() as asked:
        assert len(get(client, f"runs?{query}").json()["results"]) == OLD
    assert index in plan_of_keys(asked)
