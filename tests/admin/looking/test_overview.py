from __future__ import annotations

from datetime import timedelta

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from flow_app.admin import overview
from flow_app.core.ports import WakeReason
from tests.admin.looking import stories

pytestmark = pytest.mark.django_db(transaction=True)


def tiles(found) -> dict[str, str]:
    return {str(tile.word): f"{tile.count}{'+' if tile.is_more else ''}" for tile in (*found.statuses, *found.needs)}


def seen(client):
    response = client.get(stories.runs("overview/"))
    assert response.status_code == 200
    return response.context["overview"]


def test_runs_are_counted_by_status_and_by_need(boss, monkeypatch):
    monkeypatch.setattr(overview, "MOST", 3)
    stories.many_runs(5)
    stories.run_of("stuck")
    stories.run_of("nap")
    found = tiles(seen(boss))
    assert found["completed"] == "3+"
    assert found["waiting"] == "1"
    assert found["blocked"] == "1"
    assert found["paused"] == "0"


def test_starts_and_ends_stand_in_their_hours(boss):
    now = timezone.now()
    stories.many_runs(3, created_at=now - timedelta(hours=3), finished_at=now)
    found = seen(boss)
    assert sum(hour.started for hour in found.chart) == 3
    assert found.chart[-1].finished == 3
    assert found.chart[-4].started == 3
    assert found.peak == 3


def test_builds_without_a_worker_are_named(boss):
    stories.many_runs(
        2, build="v1", status="running", finished_at=None, wake_at=timezone.now(), wake_reason=WakeReason.NO_WORKER
    )
    (build,) = seen(boss).missing_builds
    assert (build.build, build.count) == ("v1", 2)


def test_the_queries_are_as_many_for_none_as_for_many(boss):
    def queries() -> int:
        with CaptureQueriesContext(connection) as captured:
            seen(boss)
        return len(captured)

    none = queries()
    stories.many_runs(100)
    stories.run_of("order")
    assert queries() == none < 20
