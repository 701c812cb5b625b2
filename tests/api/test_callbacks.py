"""The public door: a hook's token, and nothing else."""

from __future__ import annotations

from datetime import timedelta
from urllib.parse import quote

import pytest
from rest_framework.test import APIClient

from flow_app import get_engine
from flow_app.api.throttling import address_of
from flow_app.engine import FlowEngine
from flow_app.models import Event, Hook
from flow_app.testing import FakeClock
from tests.api.calls import BASE, delete, get, pointers, post, refused, start

pytestmark = pytest.mark.django_db(transaction=True)

ODD = ["tok", "a/b/c", "ключ", "with space", "%41", "x" * 500, "a?b#c", "..", "a/", "<b>"]


def decisions(run_id: str) -> list[Event]:
    kinds = ("hook_received", "hook_disposed", "hook_expired")
    return list(Event.objects.filter(run__run_id=run_id, type__in=kinds))


def test_the_first_answer_wins(api: APIClient, anonymous: APIClient) -> None:
    start(api, "approval", {"token": "tok"}, run_id="r1")
    first = post(anonymous, "callbacks/tok", {"approved": True})
    again = post(anonymous, "callbacks/tok", {"approved": True})
    assert (first.status_code, again.status_code) == (200, 200)
    assert first.json() == again.json()
    assert (first.json()["run_id"], first.json()["hook_id"], first.json()["status"]) == ("r1", "decision", "received")
    problem = refused(post(anonymous, "callbacks/tok", {"approved": False}), 409, "hook_conflict")
    assert problem["standing"]["payload"] == {"approved": True}
    assert problem["standing"]["status"] == "received"
    assert refused(delete(anonymous, "callbacks/tok"), 409, "hook_conflict")["standing"] == problem["standing"]
    assert len(decisions("r1")) == 1
    assert get_engine().snapshot("r1").output == {"decision": {"approved": True}}


@pytest.mark.parametrize("answer", [None, {}, 0, "", False, []], ids=repr)
def test_every_json_is_an_answer(api: APIClient, anonymous: APIClient, answer: object) -> None:
    start(api, "approval", {"token": "tok"}, run_id="r1")
    for _ in range(2):
        assert post(anonymous, "callbacks/tok", answer).status_code == 200
    assert get_engine().snapshot("r1").hook_payload("decision") == answer
    assert get_engine().snapshot("r1").output == {"decision": answer}


def test_nothing_is_no_answer(api: APIClient, anonymous: APIClient) -> None:
    start(api, "approval", {"token": "tok"}, run_id="r1")
    refused(post(anonymous, "callbacks/tok"), 400, "parse_error")
    refused(anonymous.post(BASE + "callbacks/tok", "{", content_type="application/json"), 400, "parse_error")
    assert not decisions("r1")


@pytest.mark.parametrize("kind", ["application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "text/plain"])
def test_only_json_is_taken(api: APIClient, anonymous: APIClient, kind: str) -> None:
    """What a form on another site can send without asking decides nothing."""
    start(api, "approval", {"token": "tok"}, run_id="r1")
    refused(anonymous.post(BASE + "callbacks/tok", "approved=1", content_type=kind), 415, "unsupported_media_type")
    assert not decisions("r1")


@pytest.mark.parametrize("method", ["get", "head", "options"])
def test_looking_never_decides(api: APIClient, anonymous: APIClient, method: str) -> None:
    """Mail scanners open every link."""
    start(api, "approval", {"token": "tok", "note": "a secret plan"}, run_id="r1")
    response = getattr(anonymous, method)(BASE + "callbacks/tok")
    assert response.status_code == 200
    if method != "head":
        shown = response.json()
        assert (shown["kind"], shown["subject"], shown["labels"]) == ("human_approval", "invoice:7", {"team": "red"})
        assert shown["status"] == "active"
    assert b"tok" not in response.content.replace(b"token", b"")
    assert b"secret plan" not in response.content
    assert (response["Cache-Control"], response["Referrer-Policy"]) == ("no-store", "no-referrer")
    post(anonymous, "callbacks/tok", {"approved": "with a secret"})
    assert b"with a secret" not in anonymous.get(BASE + "callbacks/tok").content
    assert len(decisions("r1")) == 1


@pytest.mark.parametrize("method", ["put", "patch", "trace"])
def test_other_methods_are_not_allowed(api: APIClient, anonymous: APIClient, method: str) -> None:
    start(api, "approval", {"token": "tok"}, run_id="r1")
    response = anonymous.generic(method.upper(), BASE + "callbacks/tok", "{}", content_type="application/json")
    refused(response, 405, "method_not_allowed")
    assert not decisions("r1")


def test_a_token_is_withdrawn(api: APIClient, anonymous: APIClient) -> None:
    start(api, "approval", {"token": "tok"}, run_id="r1")
    assert [delete(anonymous, "callbacks/tok").status_code for _ in range(2)] == [200, 200]
    problem = refused(post(anonymous, "callbacks/tok", {"approved": True}), 410, "hook_disposed")
    assert problem["standing"]["status"] == "disposed"
    assert [event.type for event in decisions("r1")] == ["hook_disposed"]


def test_a_deadline_that_has_passed_is_written_and_told(
    api: APIClient, anonymous: APIClient, clock: FakeClock, engine: FlowEngine
) -> None:
    start(api, "approval", {"token": "tok", "days": 1}, run_id="r1")
    clock.advance(timedelta(days=2))
    assert get(anonymous, "callbacks/tok").json()["status"] == "expired"
    for _ in range(2):
        refused(post(anonymous, "callbacks/tok", {"approved": True}), 410, "hook_expired")
        refused(delete(anonymous, "callbacks/tok"), 410, "hook_expired")
    assert [event.type for event in decisions("r1")] == ["hook_expired"]
    assert engine.snapshot("r1").output == "expired"


def test_a_run_that_was_cancelled_takes_no_answer(api: APIClient, anonymous: APIClient) -> None:
    start(api, "approval", {"token": "tok"}, run_id="r1")
    post(api, "runs/r1/cancel")
    assert get(anonymous, "callbacks/tok").json()["status"] == "cancelled"
    refused(post(anonymous, "callbacks/tok", {"approved": True}), 410, "hook_cancelled")
    refused(delete(anonymous, "callbacks/tok"), 410, "hook_cancelled")


def test_a_token_that_was_never_issued_is_not_found(anonymous: APIClient) -> None:
    for response in (
        get(anonymous, "callbacks/nope"),
        post(anonymous, "callbacks/nope", {}),
        delete(anonymous, "callbacks/nope"),
        anonymous.options(BASE + "callbacks/nope"),
    ):
        assert "nope" not in str(refused(response, 404, "hook_token_not_found"))


def test_a_token_is_not_logged(api: APIClient, anonymous: APIClient, caplog: pytest.LogCaptureFixture) -> None:
    start(api, "approval", {"token": "s3cret", "schema": True}, run_id="r1")
    for body in ({}, {"approved": True}, {"approved": False}):
        post(anonymous, "callbacks/s3cret", body)
    post(anonymous, "callbacks/s3cret-too", 1)
    anonymous.put(BASE + "callbacks/s3cret")
    assert "s3cret" not in caplog.text


def test_the_active_hook_goes_before_the_one_last_closed(api: APIClient, anonymous: APIClient) -> None:
    for run_id in ("r1", "r2"):
        start(api, "approval", {"token": "order:1"}, run_id=run_id)
        assert post(anonymous, "callbacks/order:1", {"of": run_id}).status_code == 200
    assert get(anonymous, "callbacks/order:1").json()["run_id"] == "r2"
    assert post(anonymous, "callbacks/order:1", {"of": "r2"}).status_code == 200
    start(api, "approval", {"token": "order:1"}, run_id="r3")
    assert get(anonymous, "callbacks/order:1").json()["run_id"] == "r3"
    assert post(anonymous, "callbacks/order:1", {"of": "r2"}).json()["run_id"] == "r3"


@pytest.mark.parametrize("token", ODD)
def test_tokens_may_be_odd(api: APIClient, anonymous: APIClient, token: str) -> None:
    start(api, "approval", {"token": token}, run_id="r1")
    assert post(anonymous, f"callbacks/{quote(token, safe='')}", 1).status_code == 200


@pytest.mark.parametrize("token", ["tok", "a/b", "x" * 500])
def test_a_bearer_token_does_the_same(api: APIClient, anonymous: APIClient, token: str) -> None:
    start(api, "approval", {"token": token}, run_id="r1")
    bearer = {"Authorization": f"Bearer {token}"}
    assert get(anonymous, "callbacks", headers=bearer).json()["status"] == "active"
    assert post(anonymous, "callbacks", {"approved": True}, headers=bearer).status_code == 200
    assert post(anonymous, "callbacks", {"approved": True}, headers=bearer).status_code == 200
    refused(post(anonymous, "callbacks", 2, headers=bearer), 409, "hook_conflict")
    refused(delete(anonymous, "callbacks", headers=bearer), 409, "hook_conflict")


@pytest.mark.parametrize("header", [None, "Bearer", "Bearer  ", "Basic dG9r", "tok"])
def test_without_a_bearer_token_there_is_no_door(anonymous: APIClient, header: str | None) -> None:
    headers = {} if header is None else {"Authorization": header}
    response = post(anonymous, "callbacks", 1, headers=headers)
    refused(response, 401, "not_authenticated")
    assert response["WWW-Authenticate"] == "Bearer"


def test_who_answered_and_from_where_is_recorded(api: APIClient, anonymous: APIClient, engine: FlowEngine) -> None:
    start(api, "approval", {"token": "tok"}, run_id="r1")
    forged = {"REMOTE_ADDR": "203.0.113.9", "HTTP_X_FORWARDED_FOR": "198.51.100.1"}
    assert post(anonymous, "callbacks/tok", 1, **forged).status_code == 200
    received = next(event for event in engine.history("r1") if event.type == "hook_received")
    assert received.meta == {"actor": "token", "address": "203.0.113.9"}
    assert Hook.objects.get().resolved_by == "token"


def test_a_session_is_not_borrowed(api: APIClient, engine: FlowEngine, user_with) -> None:
    """Another site may have a browser send its cookies along: they count for nothing here."""
    start(api, "approval", {"token": "tok"}, run_id="r1")
    browser = APIClient(enforce_csrf_checks=True)
    browser.force_login(user_with(name="eve"))
    assert post(browser, "callbacks/tok", 1).status_code == 200
    assert Hook.objects.get().resolved_by == "token"
    refused(post(browser, "runs", {"workflow": "echo"}), 403, "permission_denied")  # there they do, with a CSRF token


def test_an_address_is_throttled_whoever_it_says_it_is(anonymous: APIClient, monkeypatch) -> None:
    monkeypatch.setattr("flow_app.api.throttling.TokenThrottle.get_rate", lambda throttle: "3/min")
    answers = [get(anonymous, f"callbacks/guess-{n}", HTTP_X_FORWARDED_FOR=f"10.0.0.{n}") for n in range(5)]
    assert [response.status_code for response in answers] == [404, 404, 404, 429, 429]
    assert int(answers[-1]["Retry-After"]) > 0
    assert get(anonymous, "callbacks/guess", REMOTE_ADDR="203.0.113.9").status_code == 404


@pytest.mark.parametrize(("proxies", "address"), [(None, "1.1.1.1"), (0, "1.1.1.1"), (1, "4.4.4.4"), (2, "3.3.3.3")])
def test_proxies_are_believed_as_far_as_the_site_says(settings, rf, proxies: int | None, address: str) -> None:
    settings.REST_FRAMEWORK = {**settings.REST_FRAMEWORK, "NUM_PROXIES": proxies}
    assert address_of(rf.get("/", REMOTE_ADDR="1.1.1.1", HTTP_X_FORWARDED_FOR="2.2.2.2, 3.3.3.3, 4.4.4.4")) == address


def test_an_answer_may_be_too_large(api: APIClient, anonymous: APIClient, settings) -> None:
    start(api, "approval", {"token": "tok"}, run_id="r1")
    settings.FLOW_APP = {"MAX_PAYLOAD": 1000}
    refused(post(anonymous, "callbacks/tok", "x" * 3000), 413, "too_large")
    assert post(anonymous, "callbacks/tok", "x" * 1500).status_code == 400
    refused(anonymous.post(BASE + "callbacks/tok", "[" * 1900, content_type="application/json"), 400, "parse_error")
    assert not decisions("r1")


# --- payload schemas ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("door", ["token", "id"])
def test_an_answer_that_is_not_as_declared_leaves_the_hook_open(api: APIClient, anonymous: APIClient, door) -> None:
    start(api, "approval", {"token": "tok", "schema": True}, run_id="r1")

    def send(payload: object):
        if door == "token":
            return post(anonymous, "callbacks/tok", payload)
        return post(api, "runs/r1/hooks/decision", {"payload": payload})

    problem = refused(send({"approved": "yes", "amount": 500}), 400, "hook_payload")
    assert pointers(problem) == {"/approved", "/amount"}
    assert pointers(refused(send({}), 400, "hook_payload")) == {"/approved"}
    assert pointers(refused(send(None), 400, "hook_payload")) == {""}
    assert Hook.objects.get().status == "active"
    assert not decisions("r1")
    assert send({"approved": True}).status_code == 200
    refused(send({"approved": "yes"}), 409, "hook_conflict")  # decided: what stands matters more than the form


@pytest.mark.parametrize("schema", [{"type": 5}, {"$ref": "http://127.0.0.1:9/schema"}, {"$schema": 1}, "text"])
def test_a_schema_that_is_none_refuses_and_fetches_nothing(api: APIClient, anonymous: APIClient, schema) -> None:
    start(api, "approval", {"token": "tok", "schema": schema}, run_id="r1")
    refused(post(anonymous, "callbacks/tok", {"approved": True}), 409, "hook_schema")
    assert not decisions("r1")
