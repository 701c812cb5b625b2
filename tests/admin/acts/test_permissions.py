"""The matrix: everybody at every page and act of the admin. Whoever adds a page adds a line."""

from __future__ import annotations

import pytest
from django.contrib import admin
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.contrib.admin.models import LogEntry
from django.urls import NoReverseMatch, reverse

from flow_app import get_engine
from flow_app.admin.acts.catalogue import HOOK_ACTS, RUN_ACTS
from flow_app.models import Event, Hook, Run
from tests.admin.acts import pages
from tests.admin.acts.flows import hook_of, run_of
from tests.admin.acts.people import PEOPLE, browser

pytestmark = pytest.mark.django_db(transaction=True)

NOBODY: set[str] = set()
LOOKERS = {"viewer", "operator", "superuser"}
HOOK_LOOKERS = {*LOOKERS, "approver"}
DECIDERS = {"approver", "operator", "superuser"}
OPERATORS = {"operator", "superuser"}

#: Pages by name, and who may GET them.
PAGES = {
    "flow_app_run_changelist": LOOKERS,
    "flow_app_run_change": LOOKERS,
    "flow_app_run_history": LOOKERS,
    "flow_app_run_add": NOBODY,
    "flow_app_run_delete": NOBODY,
    "flow_app_run_start": OPERATORS,
    "flow_app_run_overview": LOOKERS,
    "flow_app_run_live": LOOKERS,
    "flow_app_hook_changelist": HOOK_LOOKERS,
    "flow_app_hook_change": HOOK_LOOKERS,
    "flow_app_hook_history": HOOK_LOOKERS,
    "flow_app_hook_add": NOBODY,
    "flow_app_hook_delete": NOBODY,
}
ACTS = {act.name: DECIDERS for act in HOOK_ACTS} | {act.name: OPERATORS for act in RUN_ACTS}


def address(name: str, run: Run, hook: Hook) -> str:
    try:
        return reverse(f"admin:{name}")
    except NoReverseMatch:
        return reverse(f"admin:{name}", args=[hook.pk if "_hook_" in name else run.pk])


def is_turned_away(who: str, response) -> bool:
    """To the log-in, or as somebody who must not."""
    if who in ("anonymous", "stranger"):
        return response.status_code == 302 and response["Location"].startswith(reverse("admin:login"))
    return response.status_code == 403


def everything() -> list:
    """All that an act could have changed."""
    return [
        list(Event.objects.order_by("pk").values_list("run", "sequence", "type")),
        list(Run.objects.order_by("pk").values_list("pk", "status", "paused_at", "wake_at", "dispatches")),
        list(LogEntry.objects.values_list("pk")),
    ]


def test_every_page_is_in_the_matrix():
    names = {pattern.name or "" for model in (Run, Hook) for pattern in admin.site.get_model_admin(model).get_urls()}
    acts = {"flow_app_run_act", "flow_app_hook_act"}
    assert {name for name in names if name.startswith("flow_app_")} - acts == set(PAGES)


@pytest.mark.parametrize("who", PEOPLE)
def test_pages(who):
    run = run_of("asks", run_id="r1")
    client = browser(who)
    for name, allowed in PAGES.items():
        response = client.get(address(name, run, hook_of(run)))
        if who in allowed:
            assert response.status_code == 200, name
        else:
            assert is_turned_away(who, response), (name, response.status_code)


@pytest.mark.parametrize("who", PEOPLE)
def test_nobody_writes_a_row_by_hand(who):
    run = run_of("asks", run_id="r1")
    client, before = browser(who), everything()
    for name in ("run_add", "run_change", "run_delete", "hook_add", "hook_change", "hook_delete"):
        response = client.post(address(f"flow_app_{name}", run, hook_of(run)), {"status": "completed", "post": "yes"})
        looks = who in LOOKERS and name == "run_change"  # the page of a run is no form: a POST shows it as well
        assert looks or is_turned_away(who, response), name
    assert everything() == before


@pytest.mark.parametrize("who", PEOPLE)
@pytest.mark.parametrize("name", ACTS)
def test_acts(who, name):
    run = run_of("asks", run_id="r1")
    if name == "unpause":
        get_engine().pause("r1")
    is_of_run = name in {act.name for act in RUN_ACTS}
    url = pages.act(run if is_of_run else hook_of(run), name)
    client, before = browser(who), everything()
    asked, done = client.get(url), client.post(url, {"payload": "1"})
    if who in ACTS[name]:
        assert (asked.status_code, done.status_code) == (200, 302)
        assert everything() != before
        assert LogEntry.objects.get().user.username == who
    else:
        assert is_turned_away(who, asked)
        assert is_turned_away(who, done)
        assert everything() == before


@pytest.mark.parametrize("who", PEOPLE)
def test_starting(who):
    client = browser(who)
    response = client.post(pages.start(), {"workflow": "asks", "run_id": "r1"})
    if who in OPERATORS:
        assert response.status_code == 302
        assert Run.objects.get().run_id == "r1"
    else:
        assert is_turned_away(who, response)
        assert not Run.objects.exists()


@pytest.mark.parametrize("who", PEOPLE)
@pytest.mark.parametrize("act", RUN_ACTS, ids=lambda act: act.name)
def test_acts_on_many(who, act):
    run = run_of("sleeps", run_id="r1")
    client, before = browser(who), everything()
    if act.name == "unpause":
        get_engine().pause("r1")
        before = everything()
    data = {"action": act.name.replace("-", "_"), ACTION_CHECKBOX_NAME: [run.pk], "confirmed": "yes"}
    response = client.post(pages.runs(), data)
    if who in OPERATORS:
        assert response.status_code == 302
        assert everything() != before
    else:
        assert everything() == before
        assert who == "viewer" or is_turned_away(who, response)


@pytest.mark.parametrize("codename", ["cancel_run", "terminate_run", "operate_run"])
def test_each_permission_opens_its_own_acts_alone(codename):
    run = run_of("sleeps", run_id="r1")
    client = browser("somebody", "view_run", codename)
    for act in RUN_ACTS:
        expected = 200 if act.permission == codename else 403
        assert client.get(pages.act(run, act.name)).status_code == expected, act.name


def test_a_right_to_act_does_not_open_what_may_not_be_seen():
    run = run_of("asks", run_id="r1")
    client = browser("blind", "cancel_run", "resume_hook")
    assert client.post(pages.act(run, "cancel")).status_code == 403
    assert client.post(pages.act(hook_of(run), "approve")).status_code == 403


@pytest.mark.parametrize("name", ["cancel", "approve"])
def test_who_may_not_learns_nothing_of_what_is_there(name):
    run = run_of("asks", run_id="r1")
    target = run if name == "cancel" else hook_of(run)
    client = browser("staff")
    there = client.get(pages.act(target, name))
    target.pk += 1000
    assert client.get(pages.act(target, name)).status_code == there.status_code == 403


def test_buttons_show_what_the_user_may_do():
    run = run_of("asks", run_id="r1")
    urls = {act.name: pages.act(hook_of(run), act.name) for act in HOOK_ACTS}
    urls |= {act.name: pages.act(run, act.name) for act in RUN_ACTS if act.name != "unpause"}
    for who, shown in (("viewer", set()), ("operator", set(urls)), ("superuser", set(urls))):
        page = browser(who).get(pages.run_page(run)).content.decode()
        assert {name for name, url in urls.items() if url in page} == shown, who


def test_no_button_leads_to_a_refusal():
    """Who may decide, and not see hooks, is not invited to."""
    run = run_of("asks", run_id="r1")
    client = browser("half", "view_run", "resume_hook")
    page = client.get(pages.run_page(run)).content.decode()
    assert not any(pages.act(hook_of(run), act.name) in page for act in HOOK_ACTS)


def test_payloads_need_a_permission_of_their_own():
    run = run_of("asks", run_id="r1")
    url = reverse("admin:flow_app_hook_change", args=[hook_of(run).pk])
    assert "amount" not in browser("approver").get(url).content.decode()
    assert "amount" in browser("operator").get(url).content.decode()
