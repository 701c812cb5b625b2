"""Runs: start, watch, end."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from rest_framework.test import APIClient

from flow_app.engine import FlowEngine
from flow_app.testing import FakeClock
from tests.api.calls import get, pointers, post, refused, start

pytestmark = pytest.mark.django_db(transaction=True)


# --- start ----------------------------------------------------------------------------------------------------------


def test_a_run_is_started_once(api: APIClient, engine: FlowEngine) -> None:
    body = {"workflow": "echo", "input": {"n": 1}, "run_id": "r1", "subject": "invoice:7", "labels": {"team": "red"}}
    first = post(api, "runs", body)
    assert first.status_code == 201
    assert first["Location"] == first.json()["url"] == "http://testserver/api/flow/runs/r1"
    assert (first.json()["status"], first.json()["labels"]) == ("completed", {"team": "red"})
    again = post(api, "runs", body)
    assert again.status_code == 200
    assert again.json() == first.json()
    refused(post(api, "runs", {**body, "input": 2}), 409, "run_conflict")
    assert engine.history("r1")[0].meta == {"actor": "ada", "address": "127.0.0.1"}


def test_an_idempotency_key_is_one_run_of_one_user(api: APIClient, client_with) -> None:
    body = {"workflow": "echo", "input": 1}
    first = post(api, "runs", body, headers={"Idempotency-Key": "order-7"})
    again = post(api, "runs", body, headers={"Idempotency-Key": "order-7"})
    assert (first.status_code, again.status_code) == (201, 200)
    assert first.json()["run_id"] == again.json()["run_id"]
    refused(post(api, "runs", {**body, "input": 2}, headers={"Idempotency-Key": "order-7"}), 409, "run_conflict")
    other = client_with("start_run", "view_run", name="bob")
    assert post(other, "runs", body, headers={"Idempotency-Key": "order-7"}).json()["run_id"] != first.json()["run_id"]


@pytest.mark.parametrize("key", ["", "with space", "ä", "x" * 256])
def test_a_bad_idempotency_key_is_refused(api: APIClient, key: str) -> None:
    response = post(api, "runs", {"workflow": "echo"}, headers={"Idempotency-Key": key})
    assert pointers(refused(response, 400, "invalid")) == {"/Idempotency-Key"}


@pytest.mark.parametrize(
    ("body", "wrong"),
    [
        ({}, {"/workflow"}),
        ({"workflow": 5}, {"/workflow"}),
        ({"workflow": "echo", "run_id": "../x"}, {"/run_id"}),
        ({"workflow": "echo", "subject": "x" * 201}, {"/subject"}),
        ({"workflow": "echo", "subject": "a\u0007"}, {"/subject"}),
        ({"workflow": "echo", "labels": []}, {"/labels"}),
        ({"workflow": "echo", "labels": {" ": "x"}}, {"/labels"}),
        ({"workflow": "echo", "labels": {"a": 1}}, {"/labels/a"}),
        ([], {""}),
    ],
    ids=str,
)
def test_what_is_wrong_with_a_start_is_pointed_at(api: APIClient, body: object, wrong: set[str]) -> None:
    assert pointers(refused(post(api, "runs", body), 400, "invalid")) == wrong


def test_an_unknown_workflow_is_named(api: APIClient) -> None:
    assert "'nope'" in refused(post(api, "runs", {"workflow": "nope"}), 400, "workflow_not_registered")["detail"]


@pytest.mark.parametrize(
    "text",
    ["[" * 5000 + "]" * 5000, "[" * 80 + "]" * 80, "1e999", "NaN", "9" * 5000, '"\\ud800', "{", "\xff"],
    ids=["too-deep", "deep", "infinite", "nan", "long", "half", "open", "latin"],
)
def test_input_that_is_no_payload_is_refused(api: APIClient, text: str) -> None:
    body = f'{{"workflow": "echo", "input": {text}}}'.encode("latin-1")
    response = api.post("/api/flow/runs", body, content_type="application/json")
    assert (response.status_code, response["Content-Type"]) == (400, "application/problem+json")


@pytest.mark.parametrize("value", [None, 0, "", False, [], {}, 2**80, "\u0000", "\ud800", {"$decimal": "1"}, 1.5])
def test_odd_input_is_kept_and_shown(api: APIClient, engine: FlowEngine, value: object) -> None:
    run_id = start(api, "echo", value)
    assert engine.snapshot(run_id).output == value
    shown = get(api, f"runs/{run_id}?include=payload").json()
    escaped = {"\u0000": "\\x00", "\ud800": "\\ud800"}
    assert shown["output"] == (escaped.get(value, value) if isinstance(value, str) else value)
    assert get(api, f"runs/{run_id}/events?include=payload").status_code == 200


def test_a_body_that_is_too_large_is_refused(api: APIClient, settings) -> None:
    settings.FLOW_APP = {"MAX_PAYLOAD": 1000}
    refused(post(api, "runs", {"workflow": "echo", "input": "x" * 3000}), 413, "too_large")
    problem = refused(post(api, "runs", {"workflow": "echo", "input": "x" * 1500}), 400, "invalid")
    assert pointers(problem) == {"/input"}


# --- lists ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def crowd(api: APIClient, clock: FakeClock, engine: FlowEngine) -> None:
    start(api, "approval", run_id="red-1", subject="order:1", labels={"team": "red", "size": "s"})
    start(api, "approval", run_id="red-2", subject="order:2", labels={"team": "red"})
    clock.advance(timedelta(hours=1))
    start(api, "echo", run_id="blue-1", subject="order:1", labels={"team": "blue"})
    start(api, "broken", run_id="broken-1")


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("", ["broken-1", "blue-1", "red-2", "red-1"]),
        ("status=suspended", ["red-2", "red-1"]),
        ("status=suspended&status=completed", ["blue-1", "red-2", "red-1"]),
        ("workflow=echo", ["blue-1"]),
        ("version=1&workflow=broken", ["broken-1"]),
        ("build=v1", []),
        ("subject=order:1", ["blue-1", "red-1"]),
        ("label=team:red", ["red-2", "red-1"]),
        ("label=team:red&label=size:s", ["red-1"]),
        ("run_id=red", ["red-2", "red-1"]),
        ("blocked=true", ["broken-1"]),
        ("blocked=false", ["blue-1", "red-2", "red-1"]),
        ("overdue=true", []),
        ("created_after=2030-01-01T00:30:00Z", ["broken-1", "blue-1"]),
        ("created_before=2030-01-01T00:30:00Z", ["red-2", "red-1"]),
        ("finished_after=2030-01-01T00:30:00Z", ["blue-1"]),
        ("finished_before=2030-01-01T00:30:00Z", []),
        ("status=&workflow=&label=&blocked=&created_after=", ["broken-1", "blue-1", "red-2", "red-1"]),
        ("status=&status=completed", ["blue-1"]),
        ("workflow=echo&workflow=", ["blue-1"]),
        ("label=&label=team:red", ["red-2", "red-1"]),
        ("label=team:red&label=", ["red-2", "red-1"]),
    ],
)
@pytest.mark.usefixtures("crowd")
def test_runs_are_filtered(api: APIClient, query: str, found: list[str]) -> None:
    response = get(api, f"runs?{query}")
    assert [run["run_id"] for run in response.json()["results"]] == found


@pytest.mark.usefixtures("crowd")
def test_overdue_runs_are_found(api: APIClient, clock: FakeClock) -> None:
    clock.advance(timedelta(hours=1))
    assert [run["run_id"] for run in get(api, "runs?overdue=true").json()["results"]] == ["broken-1"]
    assert len(get(api, "runs?overdue=false").json()["results"]) == 3


@pytest.mark.parametrize(
    ("query", "wrong"),
    [
        ("colour=red", "/colour"),
        ("status=odd", "/status"),
        ("label=team", "/label"),
        ("created_after=yesterday", "/created_after"),
        ("created_after=0001-01-01T00:00:00%2B14:00", "/created_after"),
        ("run_id=%00", "/run_id"),
        ("include=payload", "/include"),
    ],
)
def test_a_filter_that_is_none_is_refused(api: APIClient, query: str, wrong: str) -> None:
    assert pointers(refused(get(api, f"runs?{query}"), 400, "invalid")) == {wrong}


def test_pages_lead_through_all_runs_once_while_others_start(api: APIClient) -> None:
    for number in range(7):
        start(api, "echo", run_id=f"r{number}")
    seen, url = [], "/api/flow/runs?page_size=3"
    while url:
        page = api.get(url).json()
        seen += [run["run_id"] for run in page["results"]]
        url = page["next"]
        start(api, "echo")
    assert seen == [f"r{number}" for number in range(6, -1, -1)]


@pytest.mark.parametrize("cursor", ["x", "cD1hYmM=", "cD0tMQ==", "bz05OTk5OTk5OTk5OTk5OTk5OTk5"])
def test_a_made_up_cursor_is_not_found(api: APIClient, cursor: str) -> None:
    assert get(api, f"runs?cursor={cursor}").status_code in (200, 404)


# --- one run --------------------------------------------------------------------------------------------------------


def test_a_run_says_what_it_does_and_where_its_parts_are(api: APIClient) -> None:
    run = get(api, f"runs/{start(api, 'approval', {'bar': 'counting'}, run_id='r1')}").json()
    assert "approval “decision”" in run["headline"]
    assert run["progress"] == {"completed": 1, "total": 3, "message": "counting"}
    assert (run["input"], run["output"]) == (None, None)
    for name in ("events", "suspensions", "hooks", "progress", "children"):
        assert api.get(run["links"][name]).status_code == 200


def test_an_unchanged_run_is_not_sent_again(api: APIClient) -> None:
    start(api, "approval", {"note": "x"}, run_id="r1")
    first = get(api, "runs/r1")
    unchanged = get(api, "runs/r1", headers={"If-None-Match": first["ETag"]})
    assert (unchanged.status_code, unchanged.content, unchanged["ETag"]) == (304, b"", first["ETag"])
    assert get(api, "runs/r1?include=payload", headers={"If-None-Match": first["ETag"]}).status_code == 200
    post(api, "runs/r1/pause")
    assert get(api, "runs/r1", headers={"If-None-Match": first["ETag"]}).status_code == 200


def test_payloads_are_shown_to_those_who_may_see_them(api: APIClient, client_with) -> None:
    start(api, "echo", {"price": 5, "password": "hunter2"}, run_id="r1")
    viewer = client_with("view_run", "view_hook", name="bob")
    for path in ("runs/r1", "runs/r1/events", "runs/r1/hooks", "runs/r1/progress", "runs/r1/children"):
        assert get(viewer, path).status_code == 200
        refused(get(viewer, f"{path}?include=payload"), 403, "permission_denied")
        assert get(api, f"{path}?include=payload").status_code == 200
    assert get(api, "runs/r1?include=payload").json()["output"] == {"price": 5, "password": "••••••"}
    assert b"hunter2" not in get(api, "runs/r1/events?include=payload").content
    assert pointers(refused(get(api, "runs/r1?include=secrets"), 400, "invalid")) == {"/include"}


def test_events_are_tailed(api: APIClient) -> None:
    start(api, "echo", 1, run_id="r1")
    events = get(api, "runs/r1/events").json()["results"]
    assert [event["type"] for event in events][:2] == ["run_created", "run_started"]
    assert [event["sequence"] for event in events] == list(range(1, len(events) + 1))
    assert get(api, f"runs/r1/events?after={len(events) - 1}").json()["results"] == events[-1:]
    assert get(api, f"runs/r1/events?after={len(events)}").json()["results"] == []
    page = get(api, "runs/r1/events?after=1&page_size=2").json()
    assert [event["sequence"] for event in page["results"]] == [2, 3]
    assert [event["sequence"] for event in api.get(page["next"]).json()["results"]] == [4, 5]


@pytest.mark.parametrize("after", ["-1", "x", "", "9" * 30, "١"])
def test_a_number_of_an_event_is_one(api: APIClient, after: str) -> None:
    start(api, "echo", run_id="r1")
    assert pointers(refused(get(api, f"runs/r1/events?after={after}"), 400, "invalid")) == {"/after"}


def test_what_a_run_waits_for(api: APIClient) -> None:
    start(api, "approval", {"days": 2}, run_id="r1")
    kinds = [(item["kind"], item["subject_id"], item["is_due"]) for item in get(api, "runs/r1/suspensions").json()]
    assert kinds == [("wait", "for-ever", False), ("hook", "decision", False)]
    post(api, "runs/r1/force-cancel")
    assert get(api, "runs/r1/suspensions").json() == []


@pytest.mark.parametrize("path", ["", "/events", "/suspensions", "/hooks", "/progress", "/children", "/hooks/x"])
def test_what_is_not_there_is_not_found(api: APIClient, path: str) -> None:
    refused(get(api, f"runs/nope{path}"), 404, "not_found")


# --- writing from outside -------------------------------------------------------------------------------------------


def test_progress_is_recorded_once(api: APIClient, engine: FlowEngine) -> None:
    start(api, "approval", run_id="r1")
    body = {"progress_id": "half", "completed": 1, "total": 2, "message": "on the way", "details": {"a": [1]}}
    assert [post(api, "runs/r1/progress", body).status_code for _ in range(2)] == [201, 200]
    refused(post(api, "runs/r1/progress", {**body, "completed": 2}), 409, "progress_conflict")
    assert pointers(refused(post(api, "runs/r1/progress", {**body, "completed": 3}), 400, "invalid")) == {""}
    (row,) = get(api, "runs/r1/progress?include=payload").json()["results"]
    assert row == {**body, "sequence": 5}
    assert engine.history("r1")[-1].meta["actor"] == "ada"
    post(api, "runs/r1/force-cancel")
    refused(post(api, "runs/r1/progress", {**body, "progress_id": "late"}), 409, "run_terminal")


def test_child_operations_are_linked_once(api: APIClient) -> None:
    start(api, "approval", run_id="r1")
    start(api, "approval", run_id="r2")
    body = {"reference_id": "c", "kind": "run", "operation_id": "o/1", "flow_run_id": "r2", "metadata": {"a": 1}}
    assert [post(api, "runs/r1/children", body).status_code for _ in range(2)] == [201, 200]
    refused(post(api, "runs/r1/children", {**body, "kind": "job"}), 409, "child_operation_conflict")
    nowhere = post(api, "runs/r1/children", {**body, "reference_id": "d", "flow_run_id": "r9"})
    assert pointers(refused(nowhere, 400, "invalid")) == {"/flow_run_id"}
    assert get(api, "runs/r1/children?include=payload").json()["results"] == [body]


# --- ending and operating -------------------------------------------------------------------------------------------


def test_a_run_is_asked_to_cancel(api: APIClient, engine: FlowEngine) -> None:
    start(api, "approval", run_id="r1")
    response = post(api, "runs/r1/cancel", {"reason": "not needed"})
    assert (response.status_code, response.json()["status"]) == (200, "cancelled")
    asked = next(event for event in engine.history("r1") if event.type == "run_cancellation_requested")
    assert asked.meta == {"actor": "ada", "address": "127.0.0.1"}
    assert post(api, "runs/r1/cancel", {"reason": "other"}).status_code == 200  # it has ended: no error


def test_a_request_to_cancel_is_taken_before_it_is_done(api: APIClient, engine: FlowEngine, monkeypatch) -> None:
    start(api, "approval", run_id="r1")
    monkeypatch.setattr(engine.services, "dispatcher", None)
    response = post(api, "runs/r1/cancel", {"reason": "not needed"})
    assert (response.status_code, response.json()["status"]) == (202, "cancelling")
    assert post(api, "runs/r1/cancel", {"reason": "not needed"}).status_code == 202
    refused(post(api, "runs/r1/cancel", {"reason": "other"}), 409, "run_conflict")


def test_a_run_is_ended_at_once(api: APIClient) -> None:
    for run_id in ("r1", "r2", "r3"):
        start(api, "approval", run_id=run_id)
    assert post(api, "runs/r1/force-cancel", {"reason": "now"}).json()["outcome"] == "cancelled"
    assert pointers(refused(post(api, "runs/r2/terminate", {"cause": "timeout"}), 400, "invalid")) == {"/deadline"}
    assert pointers(refused(post(api, "runs/r2/terminate", {"cause": "rage"}), 400, "invalid")) == {"/cause"}
    deadline = datetime(2029, 1, 1, tzinfo=UTC).isoformat()
    late = post(api, "runs/r2/terminate", {"cause": "timeout", "deadline": deadline, "reason": "too late"})
    assert (late.json()["status"], late.json()["outcome"]) == ("failed", "timed_out")
    assert post(api, "runs/r3/terminate", {"cause": "host_shutdown"}).json()["outcome"] == "host_shutdown"
    assert post(api, "runs/r3/force-cancel").json()["outcome"] == "host_shutdown"  # the first ending stands


def test_a_run_is_paused_and_goes_on(api: APIClient) -> None:
    start(api, "approval", run_id="r1")
    assert post(api, "runs/r1/pause").json()["paused_at"] is not None
    refused(post(api, "runs/r1/run-now"), 409, "invalid_transition")
    assert post(api, "runs/r1/unpause").json()["paused_at"] is None
    assert post(api, "runs/r1/run-now").status_code == 202
    post(api, "runs/r1/force-cancel")
    refused(post(api, "runs/r1/pause"), 409, "run_terminal")


# --- the site -------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("crowd")
def test_the_sites_counts_are_the_engines(api: APIClient, engine: FlowEngine) -> None:
    assert get(api, "summary").json() == engine.run_summary()


def test_the_root_leads_everywhere(api: APIClient) -> None:
    for address in get(api, "").json().values():
        assert api.get(address).status_code == 200
    assert {"name": "echo", "version": "1"} in get(api, "workflows").json()
