"""The hook inbox, for people who only approve."""

from __future__ import annotations

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from flow_app import get_engine
from flow_app.admin import inbox
from flow_app.admin.acts.catalogue import HOOK_ACTS
from flow_app.models import Event, Hook
from tests.admin.acts import flows, pages
from tests.admin.acts.flows import hook_of, run_of
from tests.admin.acts.people import browser

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def approver():
    return browser("approver")


def listed(client, query=""):
    return [hook.run.run_id for hook in client.get(f"{pages.inbox()}?{query}").context["cl"].result_list]


def asked(run_id, about="order:7", **stated):
    return run_of("asks", {"metadata": flows.approval(about).to_value()}, run_id=run_id, **stated)


def test_open_hooks_oldest_first(approver):
    for run_id in ("b", "a", "c"):
        asked(run_id)
    get_engine().resume_hook("a", "approval", 1)
    get_engine().force_cancel("c")
    asked("d")
    assert listed(approver) == ["b", "d"]
    assert listed(approver, "state=decided") == ["c", "a"], "of what is decided, the latest come first"
    assert listed(approver, "state=all") == ["d", "c", "a", "b"]


def test_a_row_says_what_it_is_about_and_offers_to_decide(approver):
    hook = hook_of(asked("r1", "order:<7>"))
    page = approver.get(pages.inbox()).content.decode()
    assert "order:&lt;7&gt;" in page
    assert "region=north" in page
    for name in ("approve", "reject"):
        assert f'formaction="{pages.act(hook, name)}"' in page
    for name in ("answer", "withdraw"):
        assert pages.act(hook, name) not in page, "what takes a form is on the page of the hook"
    own = approver.get(reverse("admin:flow_app_hook_change", args=[hook.pk])).content.decode()
    assert all(pages.act(hook, act.name) in own for act in HOOK_ACTS)
    assert pages.run_page(hook.run) not in page, "who may not see runs gets no link to them"
    assert hook.token_digest.removeprefix("sha256:")[:12] not in page


def test_who_may_see_runs_gets_links_to_them():
    run = asked("r1")
    page = browser("viewer").get(pages.inbox()).content.decode()
    assert pages.run_page(run) in page
    assert "formaction" not in page


def test_deciding_comes_back_to_the_inbox(approver):
    hook = hook_of(asked("r1"))
    response = approver.post(pages.act(hook, "approve"), follow=True)
    assert response.redirect_chain == [(pages.inbox(), 302)]
    assert pages.said(response) == ["approval (r1): Approved."]
    assert listed(approver) == []


@pytest.mark.parametrize(("count", "more"), [(20, None), (21, "and one more label"), (25, "and 5 more labels")])
def test_of_many_labels_the_first_are_shown_and_the_others_counted(approver, count, more):
    labels = {f"label-{number:02}": "x" for number in range(count)}
    hook = hook_of(run_of("asks", {"metadata": {"kind": "k", "labels": labels}}, run_id="r1"))
    for url in (pages.inbox(), reverse("admin:flow_app_hook_change", args=[hook.pk]), pages.act(hook, "answer")):
        page = approver.get(url).content.decode()
        assert "label-19" in page
        assert "label-20" not in page
        assert ("more label" in page) == (more is not None)
        assert more is None or more in page


@pytest.mark.parametrize(
    ("words", "to_viewer", "to_approver"),
    [
        ("order:1", ["own"], ["own"]),
        ("order:2", ["run"], []),
        ("order", [], []),
        ("plain", ["plain"], ["plain"]),
        ("shift=late", ["run"], []),
        ("region=north", ["own", "run", "plain"], ["own", "run", "plain"]),
        ("region=nor", [], []),
        ('a"b', ["quoted"], ["quoted"]),
        ("grün", ["green"], ["green"]),
        ("%", [], []),
        ("nobody", [], []),
    ],
)
def test_hooks_are_found_by_subject_label_and_run(words, to_viewer, to_approver):
    """What a run is about is for those who may see runs."""
    asked("own", "order:1")
    asked("run", "x", subject="order:2", labels={"shift": "late"})
    asked("plain", "y")
    for run_id, subject in (("quoted", 'a"b'), ("green", "grün")):
        run_of("asks", {"metadata": {"kind": "k", "subject": subject}}, run_id=run_id)
    assert searched(browser("viewer"), words) == to_viewer
    assert searched(browser("approver"), words) == to_approver


def searched(client, words, **query):
    response = client.get(pages.inbox(), {"q": words, **query})
    return [hook.run.run_id for hook in response.context["cl"].result_list]


@pytest.mark.parametrize("name", ["viewer", "approver"])
@pytest.mark.parametrize(
    "words", ["salary=5000", "note=fire him", "fire him", "type=string", "approval", "human_approval"]
)
def test_nobody_guesses_at_what_he_may_not_see(name, words):
    """A hook holds more than the inbox shows, and all of it is one text to the database."""
    data = {"salary": "5000", "note": "fire him", "subject": "fire him", "labels": {"salary": "5000"}}
    schema = {"type": "string"}
    metadata = {"kind": "human_approval", "subject": "order:7", "data": data, "payload_schema": schema}
    run_of("asks", {"metadata": metadata, "salary": "5000"}, run_id="r1")
    client = browser(name)
    assert searched(client, words) == []
    assert searched(client, words, state="all") == []
    assert searched(client, "order:7") == ["r1"]


@pytest.mark.parametrize("state", ["", "decided", "all"])
def test_the_subject_of_a_run_finds_the_hooks_that_show_it(approver, state):
    run_of("asks", {"metadata": {"kind": "k"}}, run_id="shown", subject="order:2")
    run_of("asks", {"metadata": {"kind": "k", "subject": "other"}}, run_id="not-shown", subject="order:2")
    if state == "decided":
        for run_id in ("shown", "not-shown"):
            get_engine().resume_hook(run_id, "approval", 1)
    assert searched(approver, "order:2", state=state) == ["shown"]


@pytest.mark.parametrize("metadata", [None, 7, "text", [1], {}, {"subject": 5, "labels": [1]}, {"labels": {"a": None}}])
def test_any_metadata_can_be_shown(approver, metadata):
    hook = hook_of(run_of("asks", {"metadata": metadata}, run_id="r1"))
    assert approver.get(pages.inbox()).status_code == 200
    assert approver.get(reverse("admin:flow_app_hook_change", args=[hook.pk])).status_code == 200
    assert pages.do(approver, hook, "answer", payload="1") == ["approval (r1): The answer is recorded."]


def test_approve_is_offered_for_approvals_alone(approver):
    hook = hook_of(run_of("asks", {"metadata": {"kind": "callback"}}, run_id="r1"))
    page = approver.get(pages.inbox()).content.decode()
    assert pages.act(hook, "approve") not in page
    assert pages.act(hook, "answer") in page


def test_the_inbox_takes_a_fixed_number_of_queries(approver, django_assert_num_queries):
    approver.get(pages.inbox())
    counts = []
    for size in (3, 40):
        while Hook.objects.count() < size:
            asked(f"r{Hook.objects.count()}")
        with django_assert_num_queries(6) as captured:
            approver.get(pages.inbox())
        counts.append(len(captured))
    assert counts[0] == counts[1]
    assert not any("flow_app_event" in query["sql"] for query in captured)


def test_nobody_counts_all_hooks(approver, monkeypatch):
    monkeypatch.setattr(inbox.FirstPages, "MOST", 2)
    for index in range(3):
        asked(f"r{index}")
    page = approver.get(pages.inbox())
    assert page.context["cl"].result_count == 2
    assert not any("COUNT(" in query["sql"] for query in query_log(approver))


def query_log(client):
    with CaptureQueriesContext(connection) as captured:
        client.get(pages.inbox())
    return captured.captured_queries


def test_a_row_says_since_when_and_until_when(approver):
    hook = hook_of(asked("r1"))
    created = Event.objects.get(run=hook.run, type="hook_created").recorded_at
    assert hook.created_at == created
    assert approver.get(pages.inbox()).context["cl"].list_display[3:5] == ["since", "until"]


def test_secrets_in_payloads_are_hidden():
    metadata = flows.approval().with_data("api_key", "s3cret").to_value()
    hook = hook_of(run_of("asks", {"metadata": metadata}, run_id="r1"))
    get_engine().resume_hook("r1", "approval", {"password": "s3cret", "yes": True})
    page = browser("operator").get(reverse("admin:flow_app_hook_change", args=[hook.pk])).content.decode()
    assert "s3cret" not in page
    assert "yes" in page
