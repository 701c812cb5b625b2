"""Every act: what it does, what it says, and who is recorded as having done it."""

from __future__ import annotations

import json

import pytest
from django.contrib.admin.models import CHANGE, LogEntry

from flow_app import get_engine
from flow_app.models import Event, Run
from tests.admin.acts import flows, pages
from tests.admin.acts.flows import hook_of, run_of, story
from tests.admin.acts.people import browser

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def operator():
    return browser("operator")


def last_meta(run: Run, event_type: str) -> dict:
    event = Event.objects.filter(run=run, type=event_type).order_by("sequence").last()
    return json.loads(event.meta)


def logged() -> list[tuple[str, int, str, str]]:
    entries = LogEntry.objects.order_by("pk").select_related("user")
    return [(entry.user.username, entry.action_flag, entry.object_repr, entry.change_message) for entry in entries]


def test_approving_answers_the_hook_and_the_run_goes_on(operator):
    run = run_of("asks", run_id="r1")
    assert pages.do(operator, hook_of(run), "approve") == ["approval (r1): Approved."]
    assert get_engine().snapshot("r1").output == {"approved": True, "by": "operator"}
    assert last_meta(run, "hook_received")["actor"] == "operator"
    assert logged() == [("operator", CHANGE, "r1", "Approve: approval")]


def test_rejecting_is_an_answer_too(operator):
    run = run_of("asks", run_id="r1")
    assert pages.do(operator, hook_of(run), "reject") == ["approval (r1): Rejected."]
    assert get_engine().snapshot("r1").output == {"approved": False, "by": "operator"}


@pytest.mark.parametrize(
    ("text", "answer"),
    [("null", None), ("", None), ("{}", {}), ("0", 0), ('""', ""), ("false", False), ("[1.10]", [1.1])],
)
def test_any_json_is_an_answer(operator, text, answer):
    run = run_of("asks", run_id="r1")
    assert pages.do(operator, hook_of(run), "answer", payload=text) == ["approval (r1): The answer is recorded."]
    assert get_engine().snapshot("r1").output == answer
    assert logged()[0][3] == "Answer: approval"


DEEP, LONG = "[" * 100 + "]" * 100, "9" * 5000


@pytest.mark.parametrize("text", ["{", "NaN", '{"a": Infinity}', "1e999", "[" * 5000, LONG, DEEP], ids=range(7))
def test_what_cannot_be_stored_is_said_in_the_form_and_the_hook_stays_open(operator, text):
    run = run_of("asks", run_id="r1")
    response = operator.post(pages.act(hook_of(run), "answer"), {"payload": text})
    assert response.status_code == 200
    assert response.context["form"].errors["payload"]
    assert hook_of(run).status == "active"
    assert logged() == []


def test_an_answer_of_another_shape_than_declared_is_refused_and_the_hook_stays_open(operator):
    pytest.importorskip("jsonschema")
    metadata = flows.approval().with_payload_schema({"type": "object", "required": ["amount"]}).to_value()
    run = run_of("asks", {"metadata": metadata}, run_id="r1")
    response = operator.post(pages.act(hook_of(run), "answer"), {"payload": '{"other": 1}'})
    assert "amount" in str(response.context["form"].errors["payload"])
    assert "{&quot;other&quot;: 1}" in response.content.decode(), "what was typed is still there"
    (text,) = pages.do(operator, hook_of(run), "approve")
    assert "not as the hook declares" in text
    assert "amount" in text
    assert hook_of(run).status == "active"
    assert pages.do(operator, hook_of(run), "answer", payload='{"amount": 1}') == [
        "approval (r1): The answer is recorded."
    ]


def test_a_schema_that_cannot_be_used_is_said_and_the_hook_stays_open(operator):
    pytest.importorskip("jsonschema")
    metadata = flows.approval().with_payload_schema({"type": "no such type"}).to_value()
    run = run_of("asks", {"metadata": metadata}, run_id="r1")
    response = operator.post(pages.act(hook_of(run), "answer"), {"payload": "1"})
    assert response.status_code == 200
    assert "cannot be used" in str(response.context["form"].errors["payload"])
    (text,) = pages.do(operator, hook_of(run), "approve")
    assert "cannot be used" in text
    assert hook_of(run).status == "active"


def test_withdrawing_closes_the_hook_without_an_answer(operator):
    run = run_of("asks", run_id="r1")
    assert pages.do(operator, hook_of(run), "withdraw") == ["approval (r1): The hook is withdrawn."]
    assert get_engine().snapshot("r1").output == "withdrawn"
    assert last_meta(run, "hook_disposed")["actor"] == "operator"


def test_asking_for_cancellation_keeps_the_reason(operator):
    run = run_of("asks", run_id="r1")
    assert pages.do(operator, run, "cancel", reason="a mistake") == ["r1: Cancellation is requested."]
    snapshot = get_engine().snapshot("r1")
    assert snapshot.cancellation.request.reason == "a mistake"
    assert snapshot.status == "cancelled"
    assert last_meta(run, "run_cancellation_requested")["actor"] == "operator"
    assert logged() == [("operator", CHANGE, "r1", "Request cancellation: a mistake")]


def test_ending_at_once_does_not_ask_the_workflow(operator):
    run = run_of("asks", run_id="r1")
    assert pages.do(operator, run, "force-cancel", reason="now") == ["r1: The run has been ended."]
    assert story(run)[-1] == "run_cancelled"
    assert "run_cancellation_requested" not in story(run)
    assert last_meta(run, "run_cancelled")["actor"] == "operator"


def test_pausing_and_letting_go_on(operator):
    run = run_of("sleeps", run_id="r1")
    assert pages.do(operator, run, "pause") == ["r1: The run is paused."]
    assert get_engine().row("r1").paused_at is not None
    assert pages.do(operator, run, "pause") == ["r1: The run was paused already: nothing has changed."]
    assert pages.do(operator, run, "unpause") == ["r1: The run goes on."]
    assert get_engine().row("r1").paused_at is None
    assert [entry[3] for entry in logged()] == ["Pause", "Let it go on"]


def test_what_blocks_a_run_is_tried_again_now(operator):
    run = run_of("stuck", run_id="r1")
    assert get_engine().row("r1").blocked_code
    flows.TROUBLE["stuck"] = False
    assert pages.do(operator, run, "run-now") == ["r1: The run is on its way."]
    assert get_engine().snapshot("r1").output == "decided"


def test_an_error_of_the_drive_does_not_hide_that_the_act_was_done(operator):
    run = run_of("stuck", run_id="r1")
    assert pages.do(operator, run, "run-now") == ["r1: The run is on its way."]
    assert get_engine().row("r1").blocked_count == 2


def test_a_timer_comes_before_its_time(operator):
    run = run_of("sleeps", run_id="r1")
    asked = operator.get(pages.act(run, "run-now"))
    choices = [value for value, _text in asked.context["form"].fields["what"].choices]
    assert choices == ["", "wait:nap"]
    assert pages.do(operator, run, "run-now") == ["r1: The run is on its way."]
    assert get_engine().snapshot("r1").status == "suspended"
    assert pages.do(operator, run, "run-now", what="wait:nap") == ["r1: The run is on its way."]
    assert get_engine().snapshot("r1").output == "awake"
    assert last_meta(run, "wait_completed")["actor"] == "operator"


def test_a_retry_comes_before_its_time(operator):
    run = run_of("tries", run_id="r1")
    flows.TROUBLE["shaky"] = False
    assert pages.do(operator, run, "run-now", what="retry:s") == ["r1: The run is on its way."]
    assert get_engine().snapshot("r1").output == "done"


@pytest.mark.parametrize("what", ["wait:other", "retry:nap", "drop table", "wait:"])
def test_nothing_that_does_not_wait_can_be_hurried(operator, what):
    run = run_of("sleeps", run_id="r1")
    response = operator.post(pages.act(run, "run-now"), {"what": what})
    assert response.context["form"].errors["what"]


@pytest.mark.parametrize("name", ["cancel", "force-cancel", "pause", "unpause", "run-now"])
def test_a_run_that_has_ended_stays_as_it_is(operator, name):
    run = run_of("asks", run_id="r1")
    get_engine().force_cancel("r1")
    before = story(run)
    (text,) = pages.do(operator, run, name)
    assert "nothing" in text.lower()
    assert story(run) == before
    assert logged() == []


def test_a_second_request_with_another_reason_hears_the_first(operator):
    run = run_of("asks", run_id="r1")
    engine = get_engine()
    engine.pause("r1")
    assert pages.do(operator, run, "cancel", reason="first") == ["r1: Cancellation is requested."]
    (text,) = pages.do(operator, run, "cancel", reason="second")
    assert "for another reason: “first”" in text
    assert pages.do(operator, run, "cancel", reason="first") == [
        "r1: Cancellation was requested before, or the run has ended: nothing has changed."
    ]


# --- decided already --------------------------------------------------------------------------------------------------


def test_the_second_click_is_told_that_the_answer_stands(operator):
    hook = hook_of(run_of("asks", run_id="r1"))
    pages.do(operator, hook, "approve")
    assert pages.do(operator, hook, "approve") == ["approval (r1): You approved it before: your answer stands."]
    assert story(hook.run).count("hook_received") == 1
    assert len(logged()) == 1


def test_the_second_approver_is_told_who_decided_and_how(operator):
    hook = hook_of(run_of("asks", run_id="r1"))
    pages.do(operator, hook, "approve")
    (text,) = pages.do(browser("approver"), hook, "reject")
    assert "operator has approved it" in text
    (text,) = pages.do(browser("second", "view_hook", "resume_hook"), hook, "approve")
    assert "operator has approved it" in text
    assert story(hook.run).count("hook_received") == 1


def test_an_answer_after_cancellation_is_told_so(operator):
    hook = hook_of(run_of("asks", run_id="r1"))
    pages.do(operator, hook.run, "cancel")
    (text,) = pages.do(operator, hook, "approve")
    assert "cancelled with its run" in text or "has ended" in text
    assert "hook_received" not in story(hook.run)


def test_an_answer_after_the_deadline_is_refused_and_the_run_goes_on(operator):
    hook = hook_of(run_of("asks", run_id="r1"))
    type(hook).objects.update(expires_at=hook.run.created_at)
    (text,) = pages.do(operator, hook, "approve")
    assert "deadline has passed" in text
    assert "hook_expired" in story(hook.run)
    assert logged() == []


def test_the_page_of_a_decided_hook_says_how_it_stands(operator):
    hook = hook_of(run_of("asks", run_id="r1"))
    pages.do(operator, hook, "reject")
    text = operator.get(pages.act(hook, "approve")).content.decode()
    assert "operator has rejected it" in text
    assert 'type="submit" class="default"' not in text


# --- only by POST -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["approve", "reject", "answer", "withdraw"])
@pytest.mark.parametrize("method", ["get", "head", "options", "put", "delete", "patch"])
def test_nothing_but_a_post_decides(operator, method, name):
    run = run_of("asks", run_id="r1")
    before = story(run)
    response = getattr(operator, method)(pages.act(hook_of(run), name))
    assert response.status_code == (200 if method in ("get", "head") else 405)
    assert story(run) == before


@pytest.mark.parametrize("name", ["cancel", "force-cancel", "pause", "run-now"])
def test_nothing_but_a_post_acts_on_a_run(operator, name):
    run = run_of("sleeps", run_id="r1")
    before = story(run)
    assert operator.get(pages.act(run, name)).status_code == 200
    assert story(run) == before
    assert get_engine().row("r1").paused_at is None


def test_a_post_from_elsewhere_is_refused():
    run = run_of("asks", run_id="r1")
    client = browser("operator", enforce_csrf_checks=True)
    assert client.post(pages.act(hook_of(run), "approve")).status_code == 403
    assert client.post(pages.act(run, "cancel")).status_code == 403
    assert client.post(pages.start(), {"workflow": "asks", "run_id": "x"}).status_code == 403
    assert story(run) == story(run)[:3]


def test_unknown_acts_and_targets_are_not_found(operator):
    run = run_of("asks", run_id="r1")
    assert operator.get(pages.act(run, "nonsense")).status_code == 404
    assert operator.get(pages.act(run, "approve")).status_code == 404
    run.pk += 1000
    assert operator.get(pages.act(run, "cancel")).status_code == 404
