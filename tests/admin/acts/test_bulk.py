"""One act for many runs: asked once, each on its own, and what came of it told apart."""

from __future__ import annotations

import pytest
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.contrib.admin.models import LogEntry

from flow_app import get_engine
from flow_app.admin.acts import bulk
from flow_app.models import Run
from tests.admin.acts import pages
from tests.admin.acts.flows import run_of
from tests.admin.acts.people import browser

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def operator():
    return browser("operator")


def act(client, action, runs, **data):
    data |= {"action": action, ACTION_CHECKBOX_NAME: [run.pk for run in runs]}
    return client.post(pages.runs(), data, follow=True)


def test_it_asks_first_and_says_which(operator):
    runs = [run_of("asks", run_id=f"r{index}") for index in range(3)]
    response = act(operator, "cancel", runs)
    page = response.content.decode()
    assert all(f"<li>{run.run_id}</li>" in page for run in runs)
    assert "3 runs" in page
    assert set(Run.objects.values_list("status", flat=True)) == {"suspended"}


def test_what_is_confirmed_is_what_was_asked(operator):
    """The fields that the question carries are all that its answer needs."""
    runs = [run_of("asks", run_id=f"r{index}") for index in range(3)]
    asked = act(operator, "cancel", runs[:2])
    fields: dict[str, list[str]] = {}
    for name, value in asked.context["hidden"]:
        fields.setdefault(name, []).append(value)
    response = operator.post(pages.runs(), {**fields, "reason": "all wrong"}, follow=True)
    assert pages.said(response) == ["Request cancellation: done for 2 runs."]
    assert list(Run.objects.order_by("pk").values_list("status", flat=True)) == ["cancelled", "cancelled", "suspended"]
    assert get_engine().snapshot("r0").cancellation.request.reason == "all wrong"
    assert LogEntry.objects.count() == 2


def test_done_nothing_to_do_and_refused_are_told_apart(operator):
    runs = [run_of("sleeps", run_id=f"r{index}") for index in range(7)]
    get_engine().force_cancel("r0")
    for paused in ("r1", "r2"):
        get_engine().pause(paused)
    texts = pages.said(act(operator, "pause", runs, confirmed="yes"))
    assert texts[0] == "Pause: done for 4 runs."
    assert texts[1] == "Pause: nothing to do for 2 runs."
    assert texts[2].startswith("Pause: refused for 1 run (r0). Nothing was changed: the run has ended")
    assert LogEntry.objects.count() == 4


def test_refusals_are_grouped_by_their_reason(operator):
    runs = [run_of("sleeps", run_id=f"r{index}") for index in range(7)]
    for run in runs:
        get_engine().force_cancel(run.run_id)
    (text,) = pages.said(act(operator, "pause", runs, confirmed="yes"))
    assert text.startswith("Pause: refused for 7 runs (r0, r1, r2, r3, r4, …).")


def test_an_error_that_nobody_foresaw_is_one_runs(operator, monkeypatch, caplog):
    runs = [run_of("sleeps", run_id=f"r{index}") for index in range(3)]
    engine = get_engine()
    pause = engine.pause

    def fails(run_id, **said):
        if run_id == "r1":
            raise OSError("secret detail")
        return pause(run_id, **said)

    monkeypatch.setattr(engine, "pause", fails)
    texts = pages.said(act(operator, "pause", runs, confirmed="yes"))
    assert texts[0] == "Pause: done for 2 runs."
    assert texts[1].startswith("Pause: refused for 1 run (r1).")
    assert "secret" not in texts[1]
    assert "secret detail" in caplog.text


def test_one_request_acts_on_so_many_and_says_that_there_are_more(operator, monkeypatch):
    monkeypatch.setattr(bulk, "MOST", 2)
    runs = [run_of("sleeps", run_id=f"r{index}") for index in range(3)]
    page = act(operator, "pause", runs).content.decode()
    assert "More runs are selected" in page
    assert pages.said(act(operator, "pause", runs, confirmed="yes")) == ["Pause: done for 2 runs."]
    assert Run.objects.paused().count() == 2


def test_a_bad_form_is_asked_again(operator):
    run = run_of("asks", run_id="r1")
    response = act(operator, "cancel", [run], confirmed="yes", reason="x" * 1001)
    assert response.context["form"].errors["reason"]
    assert Run.objects.get().status == "suspended"


def test_nothing_is_deleted_by_an_action(operator):
    run = run_of("asks", run_id="r1")
    act(browser("superuser"), "delete_selected", [run], post="yes")
    assert Run.objects.exists()
