"""Who may do what: everybody x every address and method, and what a user does not see is not there for him."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth import get_user_model
from rest_framework.test import APIClient

from flow_app import ChildOperationReference
from flow_app.api.serializers import FlowChildOperation
from flow_app.api.urls import urlpatterns
from flow_app.models import ChildOperation
from tests.api.calls import BASE, get, pointers, post, refused, start
from tests.api.conftest import ALL

pytestmark = pytest.mark.django_db(transaction=True)

RUN, HOOK = "view_run", "view_hook"
PROGRESS = {"progress_id": "p", "completed": 1}
CHILD = {"reference_id": "c", "kind": "k", "operation_id": "o"}

#: Every address and method of the API: what it takes, and a body that is good enough. None: the public door.
MATRIX: list[tuple[str, str, set[str] | None, Any]] = [
    ("GET", "", set(), None),
    ("GET", "workflows", set(), None),
    ("GET", "summary", {RUN}, None),
    ("GET", "runs", {RUN}, None),
    ("POST", "runs", {RUN, "start_run"}, {"workflow": "echo"}),
    ("GET", "runs/r1", {RUN}, None),
    ("GET", "runs/r1/events", {RUN}, None),
    ("GET", "runs/r1/suspensions", {RUN}, None),
    ("GET", "runs/r1/progress", {RUN}, None),
    ("POST", "runs/r1/progress", {RUN, "change_run"}, PROGRESS),
    ("GET", "runs/r1/children", {RUN}, None),
    ("POST", "runs/r1/children", {RUN, "change_run"}, CHILD),
    ("POST", "runs/r1/cancel", {RUN, "cancel_run"}, {}),
    ("POST", "runs/r1/force-cancel", {RUN, "terminate_run"}, {}),
    ("POST", "runs/r1/terminate", {RUN, "terminate_run"}, {"cause": "host_shutdown"}),
    ("POST", "runs/r1/pause", {RUN, "operate_run"}, {}),
    ("POST", "runs/r1/unpause", {RUN, "operate_run"}, {}),
    ("POST", "runs/r1/run-now", {RUN, "operate_run"}, {}),
    ("GET", "runs/r1/hooks", {RUN, HOOK}, None),
    ("GET", "runs/r1/hooks/decision", {HOOK}, None),
    ("POST", "runs/r1/hooks/decision", {HOOK, "resume_hook"}, {"payload": 1}),
    ("DELETE", "runs/r1/hooks/decision", {HOOK, "resume_hook"}, None),
    ("GET", "hooks", {HOOK}, None),
    ("GET", "callbacks/tok", None, None),
    ("POST", "callbacks/tok", None, 1),
    ("DELETE", "callbacks/tok", None, None),
]
PEOPLE: dict[str, tuple[str, ...] | None] = {
    "anonymous": None,
    "nobody": (),
    "viewer": (RUN, HOOK),
    "approver": (HOOK, "resume_hook"),
    "operator": (RUN, HOOK, "start_run", "cancel_run", "operate_run"),
    "host": (RUN, "start_run", "change_run"),
    "terminator": (RUN, "terminate_run"),
    "careless": tuple(name for name in ALL if name not in (RUN, HOOK)),  # verbs, and no right to look
    "everything": ALL,
}


@pytest.fixture
def client_of(user_with: Callable[..., Any]) -> Callable[[str], APIClient]:
    def make(person: str) -> APIClient:
        client = APIClient()
        if person == "superuser":
            client.force_login(get_user_model().objects.create_superuser("root"))
        elif (codenames := PEOPLE[person]) is not None:
            client.force_login(user_with(*codenames, name=person))
        return client

    return make


@pytest.mark.parametrize("person", [*PEOPLE, "superuser"])
def test_the_matrix(api: APIClient, client_of: Callable[[str], APIClient], person: str, engine) -> None:
    client = client_of(person)
    for number, (method, path, needs, body) in enumerate(MATRIX):
        run_id = f"{person}-{number}"
        engine.start("approval", {"token": f"tok-{run_id}"}, run_id=run_id)
        path = path.replace("r1", run_id).replace("tok", f"tok-{run_id}")
        response = client.generic(method, BASE + path, *_json(body))
        granted = PEOPLE.get(person, ALL)
        may = needs is None or (granted is not None and needs <= set(granted))
        if may:
            assert response.status_code in (200, 201, 202), (method, path, response.content)
        else:
            refused(response, 403, "not_authenticated" if granted is None else "permission_denied")
            assert engine.row(run_id).last_sequence == 4  # nothing was written


def _json(body: Any) -> tuple[Any, ...]:
    import json

    return () if body is None else (json.dumps(body), "application/json")


@pytest.mark.parametrize("person", [*PEOPLE, "superuser"])
def test_looking_at_headers_or_options_is_looking(client_of: Callable[[str], APIClient], person: str, engine) -> None:
    client = client_of(person)
    engine.start("approval", {"token": "tok"}, run_id="r1")
    for path in dict.fromkeys(path for _, path, _, _ in MATRIX):
        methods = {method: needs for method, other, needs, _ in MATRIX if other == path}
        needs = methods.get("GET", next(iter(methods.values())))
        granted = PEOPLE.get(person, ALL)
        may = needs is None or (granted is not None and needs <= set(granted))
        assert client.options(BASE + path).status_code == (200 if may else 403), path
        if "GET" in methods:
            assert client.head(BASE + path).status_code == (200 if may else 403), path
        for method in {"GET", "POST", "PUT", "PATCH", "DELETE"} - set(methods):
            response = client.generic(method, BASE + path, "{}", "application/json")
            assert response.status_code in (403, 405), (method, path)
    assert engine.row("r1").last_sequence == 4


def test_the_matrix_has_every_address_and_method() -> None:
    listed = {(method, path) for method, path, _, _ in MATRIX}
    for pattern in urlpatterns:
        route = str(pattern.pattern)
        for name, value in {"str:run_id": "r1", "flow_text:hook_id": "decision", "flow_text:token": "tok"}.items():
            route = route.replace(f"<{name}>", value)
        if route == "callbacks":
            continue  # the same door, with the token in a header
        view = pattern.callback.view_class
        assert {
            (method, route) for method in ("GET", "POST", "PUT", "PATCH", "DELETE") if hasattr(view, method.lower())
        } <= listed
        if needed := getattr(view, "permissions", None):
            found = {
                method: {f"flow_app.{name}" for name in needs or ()}
                for method, path, needs, _ in MATRIX
                if path == route
            }
            assert found == {method: set(names) for method, names in needed.items()}, route


@pytest.mark.parametrize("path", ["runs/r1", "runs/nope", "runs/r1/hooks/decision", "runs/r1/hooks/nope"])
def test_who_may_not_look_does_not_learn_what_is_there(client_with, engine, path: str) -> None:
    engine.start("approval", run_id="r1")
    refused(get(client_with("start_run"), path), 403, "permission_denied")


def test_csrf_is_asked_of_sessions(user_with, engine) -> None:
    engine.start("approval", run_id="r1")
    browser = APIClient(enforce_csrf_checks=True)
    browser.force_login(user_with(*ALL))
    refused(post(browser, "runs/r1/cancel"), 403, "permission_denied")
    assert engine.row("r1").last_sequence == 4


# --- each his own runs ----------------------------------------------------------------------------------------------


@pytest.fixture
def _red_only(settings) -> None:
    settings.ROOT_URLCONF = "tests.api.urls_red"


@pytest.mark.usefixtures("_red_only")
def test_runs_that_are_not_for_the_user_are_not_there(api: APIClient, engine) -> None:
    engine.start("approval", {"token": "blue"}, run_id="blue", labels={"team": "blue"})
    engine.start("approval", {"token": "red"}, run_id="red", labels={"team": "red"})
    for method, path, _, body in MATRIX:
        if "r1" in path:
            refused(api.generic(method, BASE + path.replace("r1", "blue"), *_json(body)), 404, "not_found")
    assert [run["run_id"] for run in get(api, "runs").json()["results"]] == ["red"]
    assert [hook["run_id"] for hook in get(api, "hooks").json()["results"]] == ["red"]
    assert get(api, "summary").json()["total"] == 1
    problem = refused(post(api, "runs", {"workflow": "approval", "run_id": "blue"}), 409, "run_conflict")
    assert problem["detail"] == "This run id is taken."
    link = {**CHILD, "flow_run_id": "blue"}
    assert pointers(refused(post(api, "runs/red/children", link), 400, "invalid")) == {"/flow_run_id"}
    assert engine.row("blue").last_sequence == 4
    assert get(api, "callbacks/blue").status_code == 200  # who has the token needs nothing else


@pytest.mark.usefixtures("_red_only")
def test_a_link_to_a_run_that_is_not_for_the_user_does_not_name_it(api: APIClient, engine) -> None:
    for run_id, team in (("red", "red"), ("blue", "blue"), ("other", "red")):
        engine.start("approval", run_id=run_id, labels={"team": team})
    for run_id in ("blue", "other"):
        engine.link_child_operation("red", ChildOperationReference(run_id, "k", "o", flow_run_id=run_id))
    rows = get(api, "runs/red/children").json()["results"]
    assert [(row["reference_id"], row["flow_run_id"]) for row in rows] == [("blue", None), ("other", "other")]
    linked = post(api, "runs/red/children", {**CHILD, "reference_id": "again", "flow_run_id": "other"})
    assert linked.json()["flow_run_id"] == "other"


def test_a_link_of_which_nobody_says_that_its_run_is_seen_does_not_name_it(engine) -> None:
    for run_id in ("r1", "r2"):
        engine.start("approval", run_id=run_id)
    engine.link_child_operation("r1", ChildOperationReference("c", "k", "o", flow_run_id="r2"))
    link = ChildOperation.objects.get()
    assert FlowChildOperation(link, context={}).data["flow_run_id"] is None
    assert FlowChildOperation(link, context={"shows_target": True}).data["flow_run_id"] == "r2"


@pytest.mark.parametrize("asked", ["workflow=approval", "subject=order:7", "label=team:red"])
def test_who_may_not_see_runs_does_not_ask_what_the_hooks_runs_are_about(client_with, engine, asked: str) -> None:
    engine.start("approval", run_id="r1", subject="order:7", labels={"team": "red"})
    approver = client_with("view_hook", "resume_hook")
    assert len(get(approver, "hooks").json()["results"]) == 1
    refused(get(approver, f"hooks?{asked}"), 403, "permission_denied")
    assert len(get(client_with("view_hook", "view_run", name="eve"), f"hooks?{asked}").json()["results"]) == 1


def test_who_sends_the_form_empty_asks_nothing(client_with, engine) -> None:
    engine.start("approval", run_id="r1")
    approver = client_with("view_hook", "resume_hook")
    assert len(get(approver, "hooks?workflow=&subject=&label=&label=").json()["results"]) == 1
    refused(get(approver, "hooks?subject=&subject=order:7&label="), 403, "permission_denied")


def test_who_paused_a_run_is_said(api: APIClient, engine) -> None:
    engine.start("approval", run_id="r1")
    assert post(api, "runs/r1/pause").json()["paused_by"] == "ada"
    assert get(api, "runs").json()["results"][0]["paused_by"] == "ada"
    assert post(api, "runs/r1/unpause").json()["paused_by"] == ""


@pytest.mark.usefixtures("_red_only")
def test_a_project_hides_what_it_likes(api: APIClient, engine) -> None:
    engine.start("echo", {"price": 5}, run_id="red", labels={"team": "red"})
    assert get(api, "runs/red?include=payload").json()["output"] == "hidden"


def test_the_projects_own_permissions_are_asked_too(api: APIClient, monkeypatch, engine) -> None:
    from rest_framework.permissions import BasePermission

    from flow_app.api.views.base import FlowView

    class Never(BasePermission):
        def has_permission(self, request: Any, view: Any) -> bool:
            return False

    monkeypatch.setattr(FlowView, "permission_classes", [Never])
    refused(get(api, "runs"), 403, "permission_denied")


def test_a_run_that_was_started_is_shown_to_who_started_it(client_with) -> None:
    assert start(client_with("start_run", "view_run"), "echo")
