"""Hooks by run and id: the inbox, and answering."""

from __future__ import annotations

from urllib.parse import quote

import pytest
from celery import Task
from rest_framework.test import APIClient

from flow_app import HookMetadata, get_engine, workflow
from flow_app.engine import FlowEngine
from flow_app.types import Command, WorkflowContext
from tests.api.calls import delete, get, pointers, post, refused, start

pytestmark = pytest.mark.django_db(transaction=True)


def test_a_hook_is_answered_by_its_id(api: APIClient, engine: FlowEngine) -> None:
    start(api, run_id="r1")
    for _ in range(2):
        response = post(api, "runs/r1/hooks/decision", {"payload": {"approved": True}})
        assert (response.status_code, response.json()["status"]) == (200, "received")
    assert response.json()["resolved_by"] == "ada"
    problem = refused(post(api, "runs/r1/hooks/decision", {"payload": {"approved": False}}), 409, "hook_conflict")
    assert problem["standing"]["payload"] == {"approved": True}
    received = [event for event in engine.history("r1") if event.type == "hook_received"]
    assert [event.meta for event in received] == [{"actor": "ada", "address": "127.0.0.1"}]


def test_null_is_an_answer_and_nothing_is_none(api: APIClient, engine: FlowEngine) -> None:
    start(api, run_id="r1")
    assert pointers(refused(post(api, "runs/r1/hooks/decision", {}), 400, "invalid")) == {"/payload"}
    assert pointers(refused(post(api, "runs/r1/hooks/decision"), 400, "invalid")) == {"/payload"}
    assert post(api, "runs/r1/hooks/decision", {"payload": None}).status_code == 200
    assert engine.snapshot("r1").output == {"decision": None}


def test_a_hook_is_withdrawn_by_its_id(api: APIClient) -> None:
    start(api, run_id="r1")
    assert [delete(api, "runs/r1/hooks/decision").json()["status"] for _ in range(2)] == ["disposed", "disposed"]
    refused(post(api, "runs/r1/hooks/decision", {"payload": 1}), 410, "hook_disposed")


def test_the_inbox_has_what_waits_oldest_first(api: APIClient) -> None:
    for number in range(3):
        start(api, run_id=f"r{number}", subject=f"order:{number}", labels={"team": "red" if number else "blue"})
    post(api, "runs/r0/force-cancel")
    post(api, "runs/r1/hooks/decision", {"payload": 1})
    start(api, run_id="r9", subject="order:9", labels={"team": "red"})
    found = get(api, "hooks").json()["results"]
    assert [hook["run_id"] for hook in found] == ["r2", "r9"]
    assert api.get(found[0]["url"]).json()["hook_id"] == "decision"
    assert [hook["run_id"] for hook in get(api, "hooks?subject=order:9").json()["results"]] == ["r9"]
    assert [hook["run_id"] for hook in get(api, "hooks?label=team:red&workflow=approval").json()["results"]] == [
        "r2",
        "r9",
    ]
    assert get(api, "hooks?label=team:blue").json()["results"] == []
    refused(get(api, "hooks?status=active"), 400, "invalid")


def test_all_hooks_of_a_run_are_listed(api: APIClient) -> None:
    start(api, run_id="r1")
    post(api, "runs/r1/hooks/decision", {"payload": {"secret": "x", "approved": True}})
    (hook,) = get(api, "runs/r1/hooks?include=payload").json()["results"]
    assert hook["received"] == {"secret": "••••••", "approved": True}
    assert hook["token"].endswith("…")
    assert len(hook["token"]) == 9


@pytest.mark.parametrize(
    "hook_id", ["a/b", "a/hooks/b", "ключ", "with space", "a%2Fb", "a?b#c", "x" * 200, "<b>", "a/"]
)
def test_ids_may_be_odd(api: APIClient, hook_id: str) -> None:
    @workflow("odd")
    def odd(ctx: WorkflowContext) -> Command:
        if ctx.hook_received(hook_id):
            return ctx.complete()
        return ctx.create_hook(hook_id, metadata={"any": "shape"})

    get_engine().start("odd", run_id="r1")
    address = get(api, "hooks").json()["results"][0]["url"]
    assert api.get(address).json()["hook_id"] == hook_id
    assert post(api, f"runs/r1/hooks/{quote(hook_id, safe='')}", {"payload": 1}).json()["status"] == "received"


@pytest.mark.parametrize("metadata", [None, 5, "x", [], {}, {"kind": 5, "labels": ["a"], "subject": {}}], ids=repr)
def test_metadata_may_have_any_shape(api: APIClient, metadata: object) -> None:
    @workflow("odd")
    def odd(ctx: WorkflowContext) -> Command:
        return ctx.create_hook("h", "tok", metadata=metadata)

    get_engine().start("odd", run_id="r1")
    shown = get(api, "runs/r1/hooks/h?include=payload").json()
    assert (shown["kind"], shown["subject"], shown["labels"], shown["metadata"]) == ("", "", {}, metadata)
    assert get(APIClient(), "callbacks/tok").status_code == 200
    assert post(api, "runs/r1/hooks/h", {"payload": 1}).status_code == 200


def test_metadata_carries_the_schema_of_its_answers() -> None:
    metadata = HookMetadata.human_approval("x").with_payload_schema({"type": "object"})
    assert metadata.to_value() == {"kind": "human_approval", "subject": "x", "payload_schema": {"type": "object"}}


def test_field_report_28_a_token_that_another_run_holds_is_told_and_never_hangs(api: APIClient) -> None:
    start(api, "approval", {"token": "order:1"}, run_id="r1")
    start(api, "approval", {"token": "order:1"}, run_id="r2")
    second = get(api, "runs/r2").json()
    assert second["blocked"]["code"] == "hook_token_conflict"
    assert "r1" in second["headline"]
    assert "order:1" not in second["headline"]
    post(api, "runs/r1/hooks/decision", {"payload": 1})
    post(api, "runs/r2/run-now")
    assert get(api, "runs/r2").json()["status"] == "suspended"


def test_field_report_41_a_run_whose_build_no_worker_runs_takes_its_answer(
    api: APIClient, settings, monkeypatch
) -> None:
    settings.FLOW_APP = {"DISPATCHER": "flow_app.dispatch.CeleryDispatcher", "BUILD": {"current": "v1"}}
    monkeypatch.setattr(Task, "apply_async", lambda *args, **options: None)
    start(api, "approval", {"token": "tok"}, run_id="r1")
    get_engine().drive("r1")  # a worker of v1
    settings.FLOW_APP = {**settings.FLOW_APP, "BUILD": {"current": "v2", "routes": {"v1": "old"}}}
    assert post(api, "runs/r1/hooks/decision", {"payload": 1}).status_code == 200
    assert get(api, "runs/r1/hooks/decision").json()["status"] == "received"
