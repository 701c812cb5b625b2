"""Where code failed: for who may see payloads and asks for them, and nothing of it for anybody else."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from rest_framework.test import APIClient

from flow_app import RetryPolicy, step, workflow
from flow_app.api.views.base import FlowView
from flow_app.core.events import StepFailed
from flow_app.engine import FlowEngine
from flow_app.errors import RuntimeFailureError
from tests.api.calls import get, post, refused, start
from tests.store.support import new

pytestmark = pytest.mark.django_db(transaction=True)

#: Addresses that may show something of a run, and all of its verbs that answer with it.
LOOKS = ("runs", "runs/r1", "runs/r1/events", "runs/r1/suspensions", "runs/r1/hooks", "hooks", "summary")


@pytest.fixture
def stopped(engine: FlowEngine) -> Callable[[str], None]:
    """Start ``r1``, which is then blocked, or has failed."""

    @step("breaks", retry=RetryPolicy.fixed(2))
    def breaks() -> None:
        raise ValueError("a secret amount")

    @workflow("fails")
    def fails(ctx: Any) -> Any:
        return ctx.schedule_step("s", breaks)

    def stop(how: str) -> None:
        if how == "failed":
            engine.start("fails", run_id="r1")
        else:
            with pytest.raises(RuntimeFailureError):
                engine.start("broken", "a secret amount", run_id="r1")

    return stop


def events(client: APIClient, query: str = "") -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = get(client, f"runs/r1/events{query}").json()["results"]
    return found


def test_of_each_failed_attempt_in_the_history(api: APIClient, stopped: Callable[[str], None]) -> None:
    stopped("failed")
    found = {event["type"]: event["meta"] for event in events(api, "?include=payload") if event["meta"]}
    assert list(found) == ["step_retrying", "step_failed", "run_retry_exhausted"]
    for meta in found.values():
        assert list(meta) == ["traceback"]
        assert 'in breaks\n    raise ValueError("a secret amount")\n' in meta["traceback"]
        assert meta["traceback"].endswith("ValueError: a secret amount\n")


@pytest.mark.parametrize(
    ("how", "line"), [("failed", 'raise ValueError("a secret amount")'), ("blocked", 'raise ValueError(f"no way')]
)
def test_of_what_stopped_a_run(api: APIClient, stopped: Callable[[str], None], how: str, line: str) -> None:
    stopped(how)
    assert line in get(api, "runs/r1?include=payload").json()["traceback"]
    assert get(api, "runs/r1").json()["traceback"] is None


def test_a_run_that_goes_well_has_none(api: APIClient) -> None:
    start(api, "approval", run_id="r1")
    assert get(api, "runs/r1?include=payload").json()["traceback"] is None
    post(api, "runs/r1/force-cancel", {"reason": "enough"})
    assert get(api, "runs/r1?include=payload").json()["traceback"] is None


@pytest.mark.parametrize("how", ["failed", "blocked"])
def test_who_does_not_ask_or_may_not_see_payloads_gets_nothing_of_it(
    api: APIClient, client_with: Callable[..., APIClient], stopped: Callable[[str], None], how: str
) -> None:
    stopped(how)
    viewer = client_with("view_run", "view_hook", "operate_run", "cancel_run", name="eve")
    for client in (api, viewer):
        answers = [get(client, path) for path in LOOKS]
        answers += [post(client, f"runs/r1/{verb}", {}) for verb in ("pause", "unpause", "cancel")]
        for answer in answers:
            text = answer.content.decode()
            assert "most recent call" not in text
            assert ", line " not in text
        assert all("traceback" not in event["meta"] for event in events(client))
    for path in ("runs/r1", "runs/r1/events"):
        refused(get(viewer, f"{path}?include=payload"), 403, "permission_denied")


def test_who_else_is_in_the_meta_stays_there(api: APIClient, engine: FlowEngine) -> None:
    start(api, "approval", run_id="r1")
    meta = {"actor": "ada", "traceback": "x\x00\ud800", "trace": {"id": 1}}
    row = engine.store.lock("r1") if engine.store.in_caller_transaction() else engine.store.row("r1")
    engine.store.append(row, [new(engine.store, StepFailed("s", 1, "e"), **meta)], change={})
    assert events(api, "?after=4")[-1]["meta"] == {"actor": "ada", "trace": {"id": 1}}
    shown = {"actor": "ada", "trace": {"id": 1}, "traceback": "x\\x00\\ud800"}
    assert events(api, "?after=4&include=payload")[-1]["meta"] == shown


def test_a_project_may_redact_them(
    api: APIClient, stopped: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    def hide(view: Any, value: Any) -> Any:
        return json.loads(json.dumps(value).replace("secret", "****"))

    monkeypatch.setattr(FlowView, "redact", hide)
    stopped("failed")
    assert get(api, "runs/r1?include=payload").json()["traceback"].endswith("ValueError: a **** amount\n")
    monkeypatch.setattr(FlowView, "redact", lambda view, value: "hidden")
    assert get(api, "runs/r1?include=payload").json()["traceback"] is None
    assert not any("traceback" in event["meta"] for event in events(api, "?include=payload"))
