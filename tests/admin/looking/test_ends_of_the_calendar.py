"""Instants at both ends of the calendar: some zones have none there, and a driver that goes by them would raise.

In Tokyo the last hours of the year 9999 are past it, in New York the first ones of the year 1 are before Christ.
"""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime, timedelta

import pytest
from django.contrib.auth import get_user_model
from django.core.management import call_command
from django.db import connection
from django.utils import timezone
from rest_framework.test import APIClient

from flow_app import get_engine
from flow_app.models import Event, Hook, Run, StepExecution
from tests.admin.looking import stories
from tests.api.calls import BASE

pytestmark = pytest.mark.django_db(transaction=True)

FIRST = datetime(1, 1, 1, tzinfo=UTC)
LAST = datetime(9999, 12, 31, 23, 59, 59, 999999, UTC)
INSTANTS = [FIRST, FIRST + timedelta(hours=9), LAST - timedelta(hours=9), LAST]
_RUN = ("timer_at", "wake_at", "lease_expires_at", "blocked_since", "paused_at", "created_at", "finished_at")
_HOOK = ("created_at", "expires_at", "resolved_at")


@pytest.fixture(
    params=[(False, "Asia/Tokyo"), (False, "America/New_York"), (True, "Asia/Tokyo"), (True, "America/New_York")]
)
def zone(request, settings):
    settings.USE_TZ, settings.TIME_ZONE = request.param
    if settings.USE_TZ:
        with timezone.override(settings.TIME_ZONE):
            yield
    else:
        yield


def stamped(at: datetime) -> Run:
    """A run that waits and is blocked, and one that has ended, with this instant wherever there is one."""
    run, ended = stories.run_of("order"), stories.run_of("order", run_id="ended")
    get_engine().resume_hook("ended", "approval", 1)
    StepExecution.objects.create(
        run=run,
        step_id="s",
        attempt=1,
        step_name="say",
        input="1",
        retry="{}",
        spec="{}",
        lease_expires_at=at,
        wake_at=at,
    )
    kept = dict.fromkeys(_RUN, at) | {"finished_at": None}
    Run.objects.filter(pk=run.pk).update(**kept, steps_out=1, blocked_code="x")
    Run.objects.filter(pk=ended.pk).update(created_at=at, finished_at=at)
    Hook.objects.update(**dict.fromkeys(_HOOK, at))
    with connection.cursor() as cursor:  # the log refuses to be changed otherwise
        field = Event._meta.get_field("recorded_at")
        cursor.execute("UPDATE flow_app_event SET recorded_at = %s", [field.get_db_prep_value(at, connection)])
    return run


@pytest.mark.usefixtures("zone")
@pytest.mark.parametrize("at", INSTANTS, ids=lambda at: at.strftime("%Y-%H"))
@pytest.mark.parametrize("paused", [True, False])
def test_every_page_shows_them(boss, at, paused):
    run = stamped(at)
    if not paused:
        Run.objects.filter(pk=run.pk).update(paused_at=None, blocked_code="", blocked_since=None)
    ended = Run.objects.with_id("ended").get()
    hook = Hook.objects.get(run=run)
    urls = [
        stories.runs(), stories.runs("overview/"), stories.page(run), stories.live(run), stories.page(ended),
        "/admin/flow_app/hook/", "/admin/flow_app/hook/?state=all", f"/admin/flow_app/hook/{hook.pk}/change/",
        f"/admin/flow_app/run/{run.pk}/act/cancel/", f"/admin/flow_app/hook/{hook.pk}/act/answer/",
    ]  # fmt: skip
    asked = at.isoformat().replace("+", "%2B")
    names = [f"{name}__{how}" for name in ("created_at", "finished_at") for how in ("gte", "lt")]
    urls += [stories.runs(f"?{name}={asked}") for name in names]
    for url in urls:
        assert boss.get(url).status_code == 200, url


@pytest.mark.usefixtures("zone")
@pytest.mark.parametrize("at", INSTANTS, ids=lambda at: at.strftime("%Y-%H"))
def test_the_api_and_the_command_show_them(at):
    stamped(at)
    client = APIClient()
    client.force_authenticate(get_user_model().objects.create_superuser("root"))
    said = at.isoformat().replace("+00:00", "Z")
    rows = {row["run_id"]: row for row in client.get(BASE + "runs").json()["results"]}
    assert rows["ended"]["finished_at"] == rows["order-1"]["paused_at"] == said
    asked = said.replace("+", "%2B")
    for path in ("runs/order-1", "runs/ended", "runs/order-1/events", "runs/order-1/hooks", "hooks", "summary",
                 "runs/order-1/hooks/approval", "runs/order-1/suspensions", "runs?overdue=true", "runs?blocked=true",
                 f"runs?created_after={asked}", f"runs?finished_before={asked}"):  # fmt: skip
        assert client.get(BASE + path).status_code == 200, path
    with suppress(SystemExit):  # something may be overdue
        call_command("flow_status")
    call_command("flow_unpause", "order-1")
