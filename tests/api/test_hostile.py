"""Callers who mean harm, and projects whose settings nobody expected."""

from __future__ import annotations

import base64
import json
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlencode

import pytest
from django.urls import include, path
from rest_framework.permissions import BasePermission, IsAuthenticated
from rest_framework.response import Response
from rest_framework.test import APIClient
from rest_framework.versioning import NamespaceVersioning, QueryParameterVersioning
from rest_framework.views import APIView, exception_handler

from flow_app import workflow
from flow_app.answering import schemas
from flow_app.api.urls import api_urls
from flow_app.api.views import callback, runs
from flow_app.api.views.base import FlowView
from flow_app.presenting.payloads import HIDDEN
from tests.api.calls import BASE, delete, get, pointers, post, refused, start

pytestmark = pytest.mark.django_db(transaction=True)


# --- bodies -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("length", ["0", "00", "none"])
def test_no_body_is_no_answer_however_its_length_is_put(api: APIClient, anonymous: APIClient, length: str) -> None:
    start(api, "approval", {"token": "tok"}, run_id="r1")
    refused(anonymous.generic("POST", BASE + "callbacks/tok", b"", CONTENT_LENGTH=length), 400, "parse_error")
    assert get(api, "runs/r1").json()["status"] == "suspended"


@pytest.mark.parametrize("charset", ["punycode", "utf-7", "utf-16", "unicode_escape", "no such"])
def test_json_is_utf_8_whatever_charset_is_named(api: APIClient, anonymous: APIClient, charset: str) -> None:
    """Decoding punycode takes time with the square of its length: a body of a megabyte would take half an hour."""
    start(api, "approval", {"token": "tok"}, run_id="r1")
    kind = f'application/json; charset="{charset}"'
    body = '"grün-\\u00e9 + -"'.encode()
    assert anonymous.generic("POST", BASE + "callbacks/tok", body, content_type=kind).status_code == 200
    assert get(api, "runs/r1?include=payload").json()["output"] == {"decision": "grün-é + -"}


@pytest.mark.parametrize(
    "body",
    [b"\x1f\x8b\x08\x00", b"\xff", b"\xef\xbb\xbf1", b"[" * 100_000, b'{"a":' * 100_000, b"9" * 5000, b"1e999", b"NaN",
     b"[" * 150 + b"]" * 150, b"'1'", b"1 2"],
    ids=lambda body: repr(body[:4]),
)  # fmt: skip
def test_what_is_no_json_decides_nothing(api: APIClient, anonymous: APIClient, body: bytes) -> None:
    start(api, "approval", {"token": "tok"}, run_id="r1")
    response = anonymous.generic("POST", BASE + "callbacks/tok", body, content_type="application/json")
    assert response.status_code == 400
    whole = b'{"workflow": "echo", "input": ' + body + b"}"
    assert api.generic("POST", BASE + "runs", whole, content_type="application/json").status_code == 400
    assert get(api, "runs/r1").json()["status"] == "suspended"


def test_no_more_problems_of_an_answer_are_looked_for_than_are_told(api, anonymous, monkeypatch) -> None:
    """An answer of a megabyte may have half a million of them, each with a copy of itself."""
    monkeypatch.setattr(schemas, "_FOUND", 3)
    start(api, "approval", {"token": "tok", "schema": {"type": "array", "items": {"type": "string"}}}, run_id="r1")
    assert len(pointers(refused(post(anonymous, "callbacks/tok", [1] * 50), 400, "hook_payload"))) == 3


# --- addresses and queries --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("position", ["9" * 5000, "9" * 30, "-1", "1.5", "٣", "x"])
@pytest.mark.parametrize("page", ["runs", "hooks"])
def test_a_cursor_of_somebodys_own_making(api: APIClient, page: str, position: str) -> None:
    cursor = base64.b64encode(urlencode({"p": position}).encode()).decode()
    refused(get(api, f"{page}?{urlencode({'cursor': cursor})}"), 404, "not_found")


@pytest.mark.parametrize("page", ["runs", "hooks"])
def test_a_query_names_so_many_labels(api: APIClient, page: str) -> None:
    assert get(api, f"{page}?" + "&".join(["label=a:b"] * 10)).status_code == 200
    assert pointers(refused(get(api, f"{page}?" + "&".join(["label=a:b"] * 11)), 400, "invalid")) == {"/label"}
    assert get(api, f"{page}?label=a:%00&label=b:c").status_code in (200, 400)


@pytest.mark.parametrize(
    "query",
    ["page_size=" + "9" * 5000, "page_size=-1", "created_after=99999-01-01", "created_after=" + "1" * 5000,
     "run_id=%00", "workflow=%25_", "workflow=%F0%9F%92%A9", "subject=%00", "format=xml", "cursor=%00", "blocked=%00",
     "created_before=0001-01-01T00:00:00%2B14:00"],
)  # fmt: skip
def test_odd_queries_are_no_fault_of_the_site(api: APIClient, query: str) -> None:
    for page in ("runs", "hooks"):
        assert get(api, f"{page}?{query[:6000]}").status_code in (200, 400, 404)


@pytest.mark.parametrize("size", ["", "0", "-1", "null", "1.5", "²", "9" * 50])
@pytest.mark.parametrize("page", ["runs", "hooks", "runs/r1/events", "runs/r1/children"])
def test_a_size_that_is_none_is_refused_and_not_ignored(api: APIClient, page: str, size: str) -> None:
    start(api, "approval", run_id="r1")
    assert pointers(refused(get(api, f"{page}?page_size={size}"), 400, "invalid")) == {"/page_size"}
    assert get(api, f"{page}?page_size=1").status_code == 200
    assert get(api, f"{page}?page_size=100000").status_code == 200


@pytest.mark.parametrize("name", ["blocked", "overdue"])
def test_yes_is_yes_and_no_is_no(api: APIClient, name: str) -> None:
    start(api, "approval", run_id="r1")
    found = {
        text: len(get(api, f"runs?{name}={text}").json()["results"]) for text in ("true", "True", "1", "false", "0", "")
    }
    assert found == {"true": 0, "True": 0, "1": 0, "false": 1, "0": 1, "": 1}
    for text in ("null", "maybe", "2"):
        assert pointers(refused(get(api, f"runs?{name}={text}"), 400, "invalid")) == {f"/{name}"}


def test_ids_and_tokens_get_into_no_header(api: APIClient, anonymous: APIClient) -> None:
    for text in ("a%0d%0aX-Evil:1", "%00", "%ff", "..%2f..", "a" * 5000):
        for address in (f"runs/{text}", f"runs/{text}/hooks/{text}", f"callbacks/{text}"):
            response = get(api, address)
            assert (response.status_code, response.has_header("X-Evil")) == (404, False), address
    for header in ("Bearer \x00", f"Bearer {'a' * 10_000}", "bearer \xff", "Basic x", "Bearer"):
        assert anonymous.get(BASE + "callbacks", HTTP_AUTHORIZATION=header).status_code in (401, 404)


def test_what_a_proxy_hands_on_as_an_address_is_bounded(api: APIClient, anonymous: APIClient, settings) -> None:
    settings.REST_FRAMEWORK = {**settings.REST_FRAMEWORK, "NUM_PROXIES": 2}
    start(api, "approval", {"token": "tok"}, run_id="r1")
    odd = "a b\x00" + "c" * 50_000
    response = post(anonymous, "callbacks/tok", 1, HTTP_X_FORWARDED_FOR=odd)
    assert response.status_code == 200
    assert len(get(api, "runs/r1/events").content) < 10_000


# --- what is told to whom ---------------------------------------------------------------------------------------------


def test_a_fault_of_the_site_logs_no_token(anonymous: APIClient, monkeypatch, caplog: pytest.LogCaptureFixture) -> None:
    anonymous.raise_request_exception = False
    monkeypatch.setattr(callback, "hook_behind", lambda token, using: 1 / 0)
    assert anonymous.get(BASE + "callbacks/very-secret").status_code == 500
    assert "callbacks/(token)" in caplog.text
    assert "very-secret" not in caplog.text


@pytest.mark.parametrize("door", ["runs/r1/hooks/decision", "callbacks/tok"])
def test_the_answer_that_stands_is_shown_without_its_secrets(api: APIClient, anonymous: APIClient, door: str) -> None:
    start(api, "approval", {"token": "tok"}, run_id="r1")
    assert post(anonymous, "callbacks/tok", {"approved": True, "password": "hunter2"}).status_code == 200
    for refusal in (post(api, door, {"payload": 1}), delete(api, door)):
        stands = refused(refusal, 409, "hook_conflict")["standing"]["payload"]
        assert stands == {"approved": True, "password": HIDDEN}


def test_who_may_not_see_payloads_learns_the_decision_that_stands_and_no_more(api: APIClient, client_with) -> None:
    late = client_with("view_hook", "resume_hook", name="bob")
    for run_id, payload, shown in (
        ("r1", {"approved": False, "salary": 9}, {"approved": False}),
        ("r2", {"approved": "of course"}, None),
        ("r3", [1], None),
    ):
        start(api, "approval", run_id=run_id)
        assert post(api, f"runs/{run_id}/hooks/decision", {"payload": payload}).status_code == 200
        problem = refused(post(late, f"runs/{run_id}/hooks/decision", {"payload": 2}), 409, "hook_conflict")
        assert problem["standing"]["payload"] == shown


@pytest.mark.parametrize("more", [{"input": 2}, {"workflow": "echo"}, {"subject": "x"}, {"labels": {"a": "b"}}])
def test_a_key_with_another_body_is_a_conflict(api: APIClient, more: dict[str, Any]) -> None:
    body = {"workflow": "approval", "input": 1, "subject": "s", "labels": {"team": "red"}}
    headers = {"Idempotency-Key": "order-7"}
    assert [post(api, "runs", body, headers=headers).status_code for _ in range(2)] == [201, 200]
    refused(post(api, "runs", {**body, **more}, headers=headers), 409, "run_conflict")


# --- what projects set ------------------------------------------------------------------------------------------------


class Never(BasePermission):
    def has_object_permission(self, request: Any, view: Any, run: Any) -> bool:
        assert run.run_id == "r1"
        return False


def test_the_projects_permissions_are_asked_about_the_run(api: APIClient, monkeypatch) -> None:
    start(api, "approval", run_id="r1")
    monkeypatch.setattr(FlowView, "permission_classes", [Never])
    for part in ("", "/events", "/hooks", "/progress", "/children", "/suspensions", "/hooks/decision"):
        refused(get(api, f"runs/r1{part}"), 403, "permission_denied")
    for verb in ("cancel", "pause", "hooks/decision"):
        refused(post(api, f"runs/r1/{verb}", {"payload": 1}), 403, "permission_denied")


class Strict:
    permission_classes = (IsAuthenticated,)

    def redact(self, value: Any) -> Any:
        return "hidden"


urlpatterns = [path("api/flow/", include(api_urls(Strict)))]


def test_a_mixin_for_all_views_leaves_the_door_open(api: APIClient, anonymous: APIClient, settings) -> None:
    settings.ROOT_URLCONF = __name__
    start(api, "approval", {"token": "tok"}, run_id="r1")
    assert post(anonymous, "callbacks/tok", 1).status_code == 200
    assert refused(post(anonymous, "callbacks/tok", 2), 409, "hook_conflict")["standing"]["payload"] == "hidden"


def test_a_fault_that_the_projects_handler_answers_is_told_as_one(api: APIClient, monkeypatch) -> None:
    def answer_all(error: Exception, context: Any) -> Response:
        return exception_handler(error, context) or Response({"secret": str(error)}, status=500)

    monkeypatch.setattr(FlowView, "get_exception_handler", lambda view: answer_all)
    monkeypatch.setattr(runs, "glance", lambda page: 1 / 0)
    assert "secret" not in refused(get(api, "runs"), 500, "error")


@pytest.mark.parametrize("scheme", [NamespaceVersioning, QueryParameterVersioning])
def test_the_projects_versions_are_not_those_of_runs(api: APIClient, scheme: Any, monkeypatch) -> None:
    kind = type("Versions", (scheme,), {"allowed_versions": ("v1",), "default_version": "v1"})
    monkeypatch.setattr(APIView, "versioning_class", kind)
    start(api, "approval", {"token": "tok"}, run_id="r1")
    assert get(api, "runs?version=1.0").status_code == 200
    assert get(api, "callbacks/tok").status_code == 200


@pytest.mark.parametrize("use_tz", [True, False])
@pytest.mark.parametrize("zone", ["America/New_York", "Asia/Tokyo", "UTC"])
def test_instants_at_the_ends_of_the_calendar(api: APIClient, settings, zone: str, use_tz: bool) -> None:
    settings.TIME_ZONE, settings.USE_TZ = zone, use_tz
    start(api, "approval", run_id="r1")
    for deadline in ("9999-12-31T23:59:59-05:00", "0001-01-01T00:00:00+09:00"):
        refused(post(api, "runs/r1/terminate", {"cause": "timeout", "deadline": deadline}), 400, "invalid")
        for name in ("created_after", "finished_before"):
            assert get(api, f"runs?{urlencode({name: deadline})}").status_code in (200, 400)
    for page in ("runs", "runs/r1", "runs/r1/events", "hooks", "summary"):
        assert get(api, page).status_code == 200
    body = {"cause": "timeout", "deadline": "2020-01-01T00:00:00"}  # without a zone it is UTC
    assert post(api, "runs/r1/terminate", body).status_code == 200
    event = get(api, "runs/r1/events?include=payload").json()["results"][-1]
    assert "2020-01-01T00:00:00Z" in json.dumps(event["data"])


@pytest.mark.parametrize("zone", ["America/New_York", "Asia/Tokyo"])
def test_what_waits_for_ever_is_shown_in_every_zone(api: APIClient, settings, zone: str) -> None:
    settings.TIME_ZONE = zone
    never = datetime.max.replace(tzinfo=UTC)

    @workflow("patient")
    def patient(ctx: Any) -> Any:
        return ctx.wait_until("end", never) if ctx.hook_created("h") else ctx.create_hook("h", expires_at=never)

    start(api, "patient", run_id="r1")
    for page in ("runs", "runs/r1", "runs/r1/events", "hooks", "runs/r1/hooks"):
        assert get(api, page).status_code == 200
