"""Every page under an AdminSite of the project's own: no link leads to another site."""

from __future__ import annotations

import re

import pytest
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.contrib.auth.models import Permission
from django.test import Client
from django.urls import NoReverseMatch, reverse

from flow_app.models import Hook
from project.invoices.models import Vendor
from tests.admin.acts import pages
from tests.admin.acts.flows import hook_of, run_of
from tests.admin.acts.people import browser, person
from tests.admin.acts.test_permissions import PAGES

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.urls("tests.admin.acts.site")]


@pytest.fixture
def root():
    return browser("superuser")


def address(name, *args, site="office"):
    return reverse(f"admin:{name}", args=args, current_app=site)


def links(page):
    return set(re.findall(r'(?:href|action|formaction)="(/[^"?]*)', page)) - {"/"}


def stays(page, site="office"):
    strays = {link for link in links(page) if not link.startswith((f"/{site}/", "/static/"))}
    assert not strays, strays


def test_every_page_stays_on_its_site(root):
    run = run_of("asks", run_id="r1")
    hook = hook_of(run)
    for name, allowed in PAGES.items():
        if allowed:
            try:
                url = address(name)
            except NoReverseMatch:
                url = address(name, hook.pk if "_hook_" in name else run.pk)
            response = root.get(url)
            assert response.status_code == 200, name
            stays(response.content.decode())


@pytest.mark.parametrize("name", ["approve", "reject", "answer", "withdraw"])
def test_acts_on_hooks_stay_on_their_site(root, name):
    hook = hook_of(run_of("asks", run_id="r1"))
    url = pages.act(hook, name, site="office")
    assert url.startswith("/office/")
    stays(root.get(url).content.decode())
    assert root.post(url, {"payload": "1"})["Location"] == address("flow_app_hook_changelist")


@pytest.mark.parametrize("name", ["cancel", "force-cancel", "pause", "run-now"])
def test_acts_on_runs_stay_on_their_site(root, name):
    run = run_of("asks", run_id="r1")
    url = pages.act(run, name, site="office")
    stays(root.get(url).content.decode())
    assert root.post(url)["Location"] == address("flow_app_run_change", run.pk)


def test_starting_and_acting_on_many_stay_on_their_site(root):
    response = root.post(address("flow_app_run_start"), {"workflow": "asks", "run_id": "r1"})
    run = hook_of_only_run().run
    assert response["Location"] == address("flow_app_run_change", run.pk)
    data = {"action": "pause", ACTION_CHECKBOX_NAME: [run.pk]}
    stays(root.post(address("flow_app_run_changelist"), data).content.decode())
    assert root.post(address("flow_app_run_changelist"), {**data, "confirmed": "yes"})["Location"].startswith(
        "/office/"
    )


def hook_of_only_run():
    return Hook.objects.select_related("run").get()


def test_a_site_without_hooks_has_runs_all_the_same(root):
    run = run_of("asks", run_id="r1")
    page = root.get(address("flow_app_run_change", run.pk, site="runs_only")).content.decode()
    stays(page, "runs-only")
    assert pages.act(run, "cancel", site="runs_only") in page


# --- the runs of an object of the project's own ----------------------------------------------------------------------


@pytest.fixture
def vendor():
    return Vendor.objects.create(code="V1", name="Vendor", email="v@example.com")


def test_the_page_of_an_object_shows_its_runs(root, vendor, django_assert_max_num_queries):
    for index in range(3):
        run_of("asks", run_id=f"r{index}", subject=f"vendor:{vendor.pk}")
    other = run_of("asks", run_id="other", subject="vendor:999")
    url = address("invoices_vendor_change", vendor.pk)
    with django_assert_max_num_queries(8):
        page = root.get(url).content.decode()
    stays(page)
    for run_id in ("r0", "r1", "r2"):
        assert f">{run_id}</a>" in page
    assert "Waits for" in page
    assert f">{other.run_id}</a>" not in page


def test_many_runs_are_led_to_by_one_link(root, vendor):
    for index in range(11):
        run_of("asks", run_id=f"r{index}", subject=f"vendor:{vendor.pk}")
    page = root.get(address("invoices_vendor_change", vendor.pk)).content.decode()
    assert f"{address('flow_app_run_changelist')}?subject=vendor%3A{vendor.pk}" in page
    assert ">r0</a>" not in page


def test_an_object_without_runs_says_so(root, vendor):
    assert "No runs yet." in root.get(address("invoices_vendor_change", vendor.pk)).content.decode()
    assert root.get(address("invoices_vendor_add")).status_code == 200


def test_saving_the_object_is_what_it_was(root, vendor):
    root.post(address("invoices_vendor_change", vendor.pk), {"code": "V2", "name": "Other"})
    vendor.refresh_from_db()
    assert (vendor.code, vendor.name) == ("V2", "Other")


@pytest.mark.parametrize("site", ["office", "alone"])
def test_who_may_not_see_runs_sees_none(vendor, site):
    run_of("asks", run_id="r1", subject=f"vendor:{vendor.pk}")
    clerk = person("clerk")
    clerk.user_permissions.set(Permission.objects.filter(codename="change_vendor"))
    client = Client()
    client.force_login(clerk)
    response = client.get(address("invoices_vendor_change", vendor.pk, site=site))
    assert response.status_code == 200
    assert ">r1<" not in response.content.decode()


def test_a_site_without_runs_shows_the_object_all_the_same(root, vendor):
    run_of("asks", run_id="r1", subject=f"vendor:{vendor.pk}")
    page = root.get(address("invoices_vendor_change", vendor.pk, site="alone")).content.decode()
    assert ">r1<" not in page


def test_runs_can_be_placed_and_styled(root, vendor):
    run_of("asks", run_id="r1", subject=f"vendor:{vendor.pk}")
    page = root.get(address("invoices_vendor_change", vendor.pk, site="placed")).content.decode()
    assert page.index(">r1<") < page.index('name="name"')
    assert page.count(">r1<") == 1
    assert "flow_app/flow_app.css" in page
    assert "own.css" in page
    assert root.get(address("invoices_vendor_add", site="placed")).status_code == 200


def test_who_sees_some_of_the_runs_acts_on_those_alone(root, vendor):
    """``get_queryset`` of the project's own admins decides, on every page and for every act."""
    for run_id in ("mine", "theirs"):
        run_of("asks", run_id=run_id, subject=f"vendor:{vendor.pk}")
    mine, theirs = (Hook.objects.get(run__run_id=run_id) for run_id in ("mine", "theirs"))
    page = root.get(address("invoices_vendor_change", vendor.pk, site="placed")).content.decode()
    assert ">mine<" in page
    assert ">theirs<" not in page
    for target, name in ((theirs, "approve"), (theirs.run, "cancel")):
        url = pages.act(target, name, site="placed")
        assert root.get(url).status_code == root.post(url).status_code == 404
    data = {"action": "pause", ACTION_CHECKBOX_NAME: [mine.run.pk, theirs.run.pk], "confirmed": "yes"}
    response = root.post(address("flow_app_run_changelist", site="placed"), data, follow=True)
    assert pages.said(response) == ["Pause: done for 1 run."]
    assert root.post(pages.act(mine, "approve", site="placed")).status_code == 302
