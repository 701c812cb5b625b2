"""Each filter, alone, finds its runs by an index, though none of the latest runs is among them."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from django.contrib.auth import get_user_model
from django.db import connection
from rest_framework.test import APIClient

from flow_app.models import Run, RunLabel
from flow_app.models.keys import text_key
from tests.admin.looking import stories
from tests.api.calls import get
from tests.store.plans import analyze, plans

pytestmark = pytest.mark.django_db(transaction=True)

OLD = 5
_RUN = ("FROM flow_app_run", 'FROM "flow_app_run"', "FROM `flow_app_run`")


@pytest.fixture(autouse=True)
def _many() -> None:
    """Of many runs, the first few wait and need somebody, and the next few ended long ago."""
    first = datetime(2020, 1, 1, tzinfo=UTC)
    needy = {"status": "suspended", "finished_at": None, "paused_at": first, "blocked_since": first}
    waiting = {"wake_at": first, "wake_reason": "no_worker", "created_at": first, "subject": "order:7"}
    old = stories.many_runs(OLD, prefix="old", workflow="rare", version="1", build="old", **needy, **waiting)
    stories.many_runs(
        OLD, prefix="ended", version="2", build="new", created_at=first.replace(2021), finished_at=first.replace(2021)
    )
    new = stories.many_runs(3000, prefix="new", version="2", build="new", subject="order:8")
    label(old, "team", "red")
    label(new, "team", "blue")
    analyze(Run._meta.db_table, RunLabel._meta.db_table)


def label(runs: list[Run], name: str, value: str) -> None:
    keys = {"name": name, "name_key": text_key(name), "value": value, "label_key": text_key(name, value)}
    RunLabel.objects.bulk_create([RunLabel(run=run, **keys) for run in runs])


def plan_of_keys(asked: plans) -> str:
    """How the database finds the runs of the page."""
    found = [
        text
        for (sql, _params), text in zip(asked.asked, asked.texts, strict=True)
        if any(table in sql for table in _RUN) and "LIMIT" in sql and "WHERE" in sql
    ]
    return found[0]


#: The index that finds what a query string asks for.
ADMIN = {
    "status=suspended": "flow_run_status_idx",
    "build=old": "flow_run_build_idx",
    "version=1": "flow_run_version_idx",
    "version=1&workflow=rare": "flow_run_workflow_id_idx",
    "workflow=rare": "flow_run_workflow_id_idx",
    "subject=order:7": "flow_run_subject_idx",
    "label=team%3Dred": "flow_label_key_idx",
    "attention=paused": "flow_run_paused_idx",
    "attention=blocked": "flow_run_stuck_idx",
    "attention=overdue": "flow_run_wake_idx",
    "attention=no_worker": "flow_run_wake_idx",
    "created_at__lt=2020-02-01T00:00Z": "flow_run_created_idx",
    "finished_at__lt=2021-02-01T00:00Z": "flow_run_ended_idx",
}
API = {
    "status=suspended": "flow_run_status_idx",
    "build=old": "flow_run_build_idx",
    "version=1": "flow_run_version_idx",
    "workflow=rare": "flow_run_workflow_id_idx",
    "subject=order:7": "flow_run_subject_idx",
    "label=team:red": "flow_label_key_idx",
    "blocked=true": "flow_run_stuck_idx",
    "overdue=true": "flow_run_wake_idx",
    "created_before=2020-02-01T00:00Z": "flow_run_created_idx",
    "finished_before=2021-02-01T00:00Z": "flow_run_ended_idx",
}
#: SQLite judges ranges, joins and columns of few values by averages, and walks the table from its new end instead.
WALKED_ON_SQLITE = (
    "workflow=rare", "label=", "attention=overdue", "attention=no_worker", "overdue=", "created_", "finished_",
)  # fmt: skip


def expected(table: dict[str, str]) -> dict[str, str]:
    if connection.vendor != "sqlite":
        return table
    return {query: index for query, index in table.items() if not query.startswith(WALKED_ON_SQLITE)}


def test_the_admin(boss) -> None:
    wrong = {}
    for query, index in expected(ADMIN).items():
        with plans() as asked:
            page = boss.get(stories.runs(f"?{query}"))
        assert len(page.context["cl"].result_list) == OLD, query
        if index not in (plan := plan_of_keys(asked)):
            wrong[query] = plan
    assert not wrong


def test_the_api() -> None:
    client = APIClient()
    client.force_authenticate(get_user_model().objects.create_superuser("root"))
    wrong = {}
    for query, index in expected(API).items():
        with plans() as asked:
            assert len(get(client, f"runs?{query}").json()["results"]) == OLD, query
        if index not in (plan := plan_of_keys(asked)):
            wrong[query] = plan
    assert not wrong
