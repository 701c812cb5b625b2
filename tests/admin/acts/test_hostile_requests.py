"""Addresses and settings that nobody expected of the admin, and what they would tell."""

from __future__ import annotations

from datetime import UTC, datetime
from uuid import UUID

import pytest
from django.contrib.auth import get_user_model
from django.test import Client
from django.urls import reverse

from flow_app import get_engine, workflow
from flow_app.core.policy import ChildOperationReference
from flow_app.errors import InvalidTransitionError
from flow_app.models import Run
from project.invoices.models import Vendor
from tests.admin.acts import flows, pages
from tests.admin.acts.people import browser

pytestmark = pytest.mark.django_db

NAMES = (
    "status", "attention", "workflow", "version", "build", "subject", "label", "q", "before", "after", "p", "o", "e",
    "all", "state", "_facets", "_popup", "_to_field", "created_at__gte", "created_at__lt", "finished_at__isnull",
    "created_at__year", "created_at__regex",
)  # fmt: skip
ODD = (
    "%00", "a%00b=c", "=", "-1", "1.1.1", "%25", "'", "error", "1e400", "9" * 5000, "%F0%9F%92%A9",
    "0001-01-01T00:00:00%2B14:00", "9999-12-31T23:59:59-14:00",
)  # fmt: skip


@pytest.fixture
def root() -> Client:
    return browser("superuser")


@pytest.mark.parametrize("name", NAMES)
def test_odd_queries_are_no_fault_of_the_site(root, name):
    flows.run_of("asks", subject="s", labels={"a": "b"})
    for page in (pages.runs(), pages.inbox()):
        answers = {odd: root.get(f"{page}?{name}={odd}").status_code for odd in ODD}
        assert set(answers.values()) <= {200, 302, 400}, answers


@pytest.mark.parametrize("key", ["9" * 30, "9" * 5000, "0", "-1", "abc", "_5f", "%00", "1%00"])
def test_odd_keys_are_not_found(root, key):
    parts = ("change/", "live/", "history/", "act/cancel/", "act/approve/", "delete/", "")
    answers = {
        root.get(f"/admin/flow_app/{kind}/{key}/{part}").status_code for kind in ("run", "hook") for part in parts
    }
    assert answers <= {301, 302, 403, 404}


@pytest.mark.parametrize(
    "query",
    ["metadata__contains=12", "received__isnull=True", "received=1", "token_digest__startswith=sha256",
     "run__error__contains=x", "run__label_rows__value=north", "resolved_by__startswith=a"],
)  # fmt: skip
def test_nobody_guesses_at_what_he_may_not_see(query):
    flows.run_of("asks")
    spy = browser("spy", "view_hook", "view_run")
    assert spy.get(f"{pages.inbox()}?{query}").status_code == 400


def test_runs_that_are_hidden_are_hidden_on_the_pages_of_others(root, settings):
    settings.ROOT_URLCONF = "tests.admin.acts.site"
    flows.run_of("asks", run_id="theirs")
    mine = flows.run_of("asks", run_id="mine")
    get_engine().link_child_operation("theirs", ChildOperationReference("up", "part", "op-up", "mine"))
    get_engine().link_child_operation("mine", ChildOperationReference("down", "part", "op-down", "theirs"))
    shown = root.get(f"/office/flow_app/run/{mine.pk}/change/").content.decode()
    assert shown.count(">theirs</a>") == 2  # part of it, and with a part in it
    hidden = root.get(f"/placed/flow_app/run/{mine.pk}/change/").content.decode()
    assert ">theirs</a>" not in hidden
    assert "op-down" in hidden


@pytest.mark.parametrize("name", [17, UUID(int=5), "x" * 400, "a\x00b", ""])
def test_a_users_natural_name_may_be_anything(root, monkeypatch, name):
    monkeypatch.setattr(get_user_model(), "get_username", lambda user: name)
    run = flows.run_of("asks")
    assert "Approved." in pages.do(root, flows.hook_of(run), "approve")[0]
    assert root.post(pages.start(), {"workflow": "asks", "run_id": "r2", "input": ""}).status_code == 302
    run = Run.objects.get(run_id="r2")
    pages.do(root, run, "cancel", reason="x")
    assert root.get(pages.run_page(run)).status_code == 200


@pytest.mark.parametrize("zone", ["Asia/Tokyo", "America/New_York"])
@pytest.mark.parametrize("use_tz", [True, False])
def test_every_page_has_its_times_whether_or_not_the_site_uses_zones(root, settings, zone, use_tz):
    settings.TIME_ZONE, settings.USE_TZ, settings.ROOT_URLCONF = zone, use_tz, "tests.admin.acts.site"
    end = datetime.max.replace(tzinfo=UTC) if use_tz else datetime(2900, 1, 1, tzinfo=UTC)

    @workflow("patient")
    def patient(ctx):
        return ctx.wait_until("end", end) if ctx.hook_created("h") else ctx.create_hook("h", expires_at=end)

    vendor = Vendor.objects.create(code="v", name="V")
    get_engine().start("patient", run_id="r1", subject=f"vendor:{vendor.pk}")
    run = Run.objects.get(run_id="r1")
    hook = flows.hook_of(run)
    looks = [
        pages.runs(), f"{pages.runs()}?created_at__gte=2020-01-01", pages.run_page(run), pages.act(run, "run-now"),
        pages.inbox(), f"{pages.inbox()}?state=all", pages.act(hook, "answer"), reverse("admin:flow_app_run_overview"),
        reverse("admin:flow_app_hook_change", args=[hook.pk]), f"/office/invoices/vendor/{vendor.pk}/change/",
    ]  # fmt: skip
    for _ in range(2):
        assert {page: root.get(page).status_code for page in looks} == dict.fromkeys(looks, 200)
        pages.do(root, hook, "withdraw")


def test_a_history_that_nobody_can_read_can_be_tried_again(root, monkeypatch):
    def unreadable(run_id):
        raise InvalidTransitionError("event 4 does not follow event 0")

    run = flows.run_of("stuck", run_id="r1")
    monkeypatch.setattr(get_engine(), "snapshot", unreadable)
    assert root.get(pages.act(run, "run-now")).status_code == 200
