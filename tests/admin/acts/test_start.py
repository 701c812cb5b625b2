"""The form that starts a run."""

from __future__ import annotations

import json

import pytest
from django.contrib.admin.models import ADDITION, LogEntry

from flow_app import get_engine
from flow_app.models import Event, Run
from tests.admin.acts import pages
from tests.admin.acts.people import browser

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def operator():
    return browser("operator")


def start(client, **data):
    return client.post(pages.start(), {"workflow": "asks", "run_id": "r1", **data}, follow=True)


def test_workflows_are_those_of_the_registry(operator):
    form = operator.get(pages.start()).context["form"]
    choices = dict(form.fields["workflow"].choices)
    assert {"asks", "sleeps", "stuck", "tries"} <= set(choices)
    assert choices["asks"] == "asks: Asks for an approval, and cleans up when it is cancelled."


def test_a_run_is_started_with_its_input_subject_and_labels(operator):
    given = {"metadata": {"kind": "k"}}
    response = start(operator, input=json.dumps(given), subject="order:7", labels="region=north\n\n shift = late ")
    assert pages.said(response) == ["The run r1 is started."]
    run = Run.objects.get()
    assert response.redirect_chain == [(pages.run_page(run), 302)]
    assert (run.subject, json.loads(run.labels)) == ("order:7", {"region": "north", "shift": "late"})
    assert get_engine().snapshot("r1").input == given
    created = Event.objects.get(run=run, sequence=1)
    assert json.loads(created.meta) == {"actor": "operator"}
    entry = LogEntry.objects.get()
    assert (entry.action_flag, entry.object_id, entry.change_message) == (ADDITION, str(run.pk), "asks")


def test_a_second_click_starts_nothing_new(operator):
    start(operator)
    assert pages.said(start(operator)) == ["The run r1 was started before."]
    assert Run.objects.count() == LogEntry.objects.count() == 1


def test_an_id_that_is_taken_by_another_run_is_said_in_the_form(operator):
    start(operator)
    for other in ({"input": "[1]"}, {"workflow": "sleeps"}):
        response = start(operator, **other)
        assert "A run of this id exists" in str(response.context["form"].non_field_errors())
    assert Run.objects.count() == 1


@pytest.mark.parametrize(
    ("field", "value"),
    [("input", "{'a': 1}"), ("input", "NaN"), ("labels", "no sign"), ("workflow", "unknown"), ("run_id", "")],
)
def test_what_is_wrong_is_said_at_its_field(operator, field, value):
    response = start(operator, **{field: value})
    assert list(response.context["form"].errors) == [field]
    assert not Run.objects.exists()


REFUSED = [{"run_id": "a b"}, {"labels": "=x"}, {"subject": "a\tb"}, {"labels": f"a={'x' * 201}"}]


@pytest.mark.parametrize("data", REFUSED, ids=range(4))
def test_what_the_engine_refuses_is_said_in_the_form(operator, data):
    response = start(operator, **data)
    assert response.context["form"].non_field_errors()
    assert not Run.objects.exists()


def test_a_workflow_that_is_blocked_at_once_is_started_all_the_same(operator):
    response = start(operator, workflow="stuck")
    assert pages.said(response) == ["The run r1 is started."]
    assert Run.objects.get().blocked_code


def test_a_link_may_fill_in_the_form(operator):
    form = operator.get(f"{pages.start()}?workflow=sleeps&subject=order:7").context["form"]
    assert (form["workflow"].value(), form["subject"].value()) == ("sleeps", "order:7")
    assert len(form["run_id"].value()) == 32


def test_who_may_start_and_not_see_stays_on_the_form():
    response = start(browser("starter", "start_run"))
    assert pages.said(response) == ["The run r1 is started."]
    assert response.redirect_chain == [(pages.start(), 302)]


def test_what_fails_to_be_logged_is_not_started(operator, monkeypatch):
    """The run and its line in the admin log are one commit."""

    def fails(*args, **kwargs):
        raise OSError("no log")

    monkeypatch.setattr("django.contrib.admin.ModelAdmin.log_addition", fails)
    with pytest.raises(OSError, match="no log"):
        start(operator)
    assert not Run.objects.exists()
