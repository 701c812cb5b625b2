"""The browsable pages: a person can start, look and approve; and nothing that others wrote runs in his browser."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.test import Client
from rest_framework.test import APIClient

from flow_app import HookMetadata, WorkflowProgress, workflow
from flow_app.engine import FlowEngine
from flow_app.types import Command, WorkflowContext
from tests.api.calls import BASE, get, post
from tests.api.conftest import ALL
from tests.markup import raising

pytestmark = pytest.mark.django_db(transaction=True)

EVIL = """"><script>alert(1)</script><img src=x onerror="alert(2)"><a href="javascript:alert(3)">'"""
HTML = {"Accept": "text/html"}


class Page(HTMLParser):
    """What of a page runs, what of it a policy against inline styles stops, and its forms."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.running: list[str] = []
        self.styled: list[str] = []
        self.forms: list[dict[str, Any]] = []
        self.fields: dict[str, str] = {}
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = {name: value or "" for name, value in attrs}
        if tag == "script" and "src" not in found and found.get("type") != "application/json":
            self.running.append(tag)
        self.running += [value for name, value in found.items() if name.startswith("on")]
        if tag == "style" or "style" in found:
            self.styled.append(self.get_starttag_text() or tag)
        urls = [url for name, url in found.items() if name in ("href", "src", "action", "formaction")]
        self.running += [url for url in urls if url.strip().lower().startswith(("javascript:", "data:", "vbscript:"))]
        if tag == "form":
            self.forms.append(found)
        if tag in ("input", "textarea", "select") and "name" in found:
            self.fields[found["name"]] = found.get("value", "")


@pytest.fixture
def person(user_with) -> Client:
    """Somebody with a browser, who may do everything."""
    client = Client(headers=HTML, enforce_csrf_checks=True)
    client.force_login(user_with(*ALL, name="pat"))
    return client


def look(client: Client, path: str, status: int = 200) -> tuple[Page, str]:
    response = client.get(BASE + path)
    assert (response.status_code, response["Content-Type"]) == (status, "text/html; charset=utf-8")
    text = response.content.decode()
    return Page(text), text


def fill_in(client: Client, path: str, status: int = 200, **values: str) -> Any:
    """Open a page, fill in its form and send it."""
    page, _ = look(client, path, status)
    assert set(values) <= set(page.fields)
    token = page.fields["csrfmiddlewaretoken"]
    fields = {name: value for name, value in page.fields.items() if name in values or name == "csrfmiddlewaretoken"}
    return client.post(BASE + path, {**fields, **values, "csrfmiddlewaretoken": token})


def test_a_person_starts_looks_and_approves(person: Client, engine: FlowEngine) -> None:
    _, root = look(person, "")
    assert f'href="http://testserver{BASE}runs"' in root
    started = fill_in(person, "runs", workflow="approval", input='{"note": "x"}', run_id="r1", subject="")
    assert started.status_code == 201
    assert engine.snapshot("r1").input == {"note": "x"}
    _, inbox = look(person, "hooks")
    assert f'href="http://testserver{BASE}runs/r1/hooks/decision"' in inbox
    wrong = fill_in(person, "runs/r1/hooks/decision", payload="{")
    assert (wrong.status_code, "is not valid JSON" in wrong.content.decode()) == (400, True)
    answered = fill_in(person, "runs/r1/hooks/decision", payload='{"approved": true}')
    assert (answered.status_code, "received" in answered.content.decode()) == (200, True)
    assert engine.snapshot("r1").output == {"decision": {"approved": True}}
    assert "completed" in look(person, "runs/r1")[1]


def test_an_empty_box_of_input_is_null(person: Client, engine: FlowEngine) -> None:
    assert fill_in(person, "runs", workflow="echo", input="", run_id="r1", subject="").status_code == 201
    assert engine.snapshot("r1").input is None


def test_verbs_have_forms(person: Client, engine: FlowEngine) -> None:
    for run_id in ("r1", "r2"):
        engine.start("approval", run_id=run_id)
    assert fill_in(person, "runs/r1/cancel", status=405, reason="not needed").status_code == 200
    assert engine.snapshot("r1").cancellation.request.reason == "not needed"
    assert fill_in(person, "runs/r2/pause", status=405).status_code == 200
    assert fill_in(person, "runs/r2/unpause", status=405).status_code == 202
    assert fill_in(person, "runs/r2/progress", progress_id="p", completed="1", total="", message="").status_code == 201


def test_who_may_not_act_sees_no_form(user_with, engine: FlowEngine) -> None:
    engine.start("approval", run_id="r1")
    client = Client(headers=HTML)
    client.force_login(user_with("view_run", "view_hook"))
    for path in ("runs", "runs/r1/hooks/decision", "runs/r1/progress"):
        page, _ = look(client, path)
        assert not [
            form for form in page.forms if form.get("method", "").upper() == "POST" and "logout" not in form["action"]
        ]


def test_a_link_in_a_mail_shows_what_is_asked(anonymous: APIClient, engine: FlowEngine) -> None:
    engine.start("approval", {"token": "tok"}, run_id="r1")
    page, text = look(Client(headers=HTML), "callbacks/tok")
    assert "invoice:7" in text
    assert not page.running


def define_evil() -> None:
    @workflow(EVIL[:100], version=EVIL[:100])
    def evil(ctx: WorkflowContext) -> Command:
        if ctx.progress(EVIL) is None:
            return ctx.record_progress(WorkflowProgress(EVIL, 1, 2, EVIL, details={EVIL: EVIL}))
        if ctx.cancellation_request is not None:
            return ctx.fail(EVIL)
        if ctx.hook_received(EVIL):
            raising(EVIL)(ctx)
        metadata = HookMetadata(EVIL, EVIL, None, {EVIL: EVIL}, {EVIL: EVIL}, {"type": "string", "title": EVIL})
        return ctx.create_hook(EVIL, EVIL, metadata)


@pytest.fixture
def evil(api: APIClient, engine: FlowEngine) -> str:
    define_evil()
    user = get_user_model().objects.create_superuser("<script>alert(9)</script>")
    client = APIClient()
    client.force_authenticate(user)
    body = {"workflow": EVIL[:100], "input": {EVIL: EVIL}, "run_id": "r1", "subject": EVIL, "labels": {EVIL: EVIL}}
    assert post(client, "runs", body).status_code == 201
    child = {"reference_id": EVIL, "kind": EVIL, "operation_id": EVIL, "metadata": {EVIL: EVIL}}
    assert post(client, "runs/r1/children", child).status_code == 201
    return "r1"


@pytest.mark.parametrize("state", ["waiting", "blocked", "failed"])
def test_nothing_that_others_wrote_runs(
    person: Client, api: APIClient, evil: str, engine: FlowEngine, state: str
) -> None:
    if state == "blocked":
        person.post(f"{BASE}callbacks/{_quoted(EVIL)}", f'"{EVIL[2:20]}"', content_type="application/json")
        assert engine.row("r1").blocked_text
        assert f"# {EVIL}</pre></details>" in get(api, "runs/r1?include=payload").json()["traceback"]
    elif state == "failed":
        engine.force_cancel("r1", EVIL)
    paths = ["workflows", "summary", "runs", "runs/r1?include=payload", "runs/r1/events?include=payload",
             "runs/r1/suspensions", "runs/r1/hooks?include=payload", "runs/r1/progress?include=payload",
             "runs/r1/children?include=payload", "hooks?include=payload", f"callbacks/{_quoted(EVIL)}",
             f"runs/r1/hooks/{_quoted(EVIL)}?include=payload"]  # fmt: skip
    for path in paths:
        page, text = look(person, path)
        assert not page.running, path
        assert not page.styled, path
        assert "<script>alert" not in text, path
        assert "<img src=x" not in text, path


@pytest.mark.parametrize(
    "path", [f"runs?status={EVIL}", f"runs?{EVIL}=1", f"runs?label={EVIL}", f"runs?subject={EVIL}"]
)
def test_nothing_that_is_asked_for_runs(person: Client, path: str) -> None:
    for url in (BASE + path, f"{BASE}runs/{_quoted(EVIL)}", f"{BASE}callbacks/{_quoted(EVIL)}"):
        text = person.get(url).content.decode()
        assert not Page(text).running
        assert "<script>alert" not in text


def test_a_refusal_echoes_no_markup_that_runs(person: Client, evil: str, engine: FlowEngine) -> None:
    token = look(person, "runs")[0].fields["csrfmiddlewaretoken"]
    for fields in ({"workflow": EVIL + "x"}, {"workflow": "echo", "run_id": EVIL}, {"workflow": "echo", "input": EVIL}):
        response = person.post(BASE + "runs", {**fields, "csrfmiddlewaretoken": token})
        assert response.status_code == 400
        assert not Page(response.content.decode()).running
    person.post(f"{BASE}runs/r1/cancel", {"reason": EVIL, "csrfmiddlewaretoken": token})
    response = person.post(f"{BASE}runs/r1/cancel", {"reason": "x", "csrfmiddlewaretoken": token})
    assert not Page(response.content.decode()).running


def test_json_is_never_taken_for_a_page(person: Client, evil: str) -> None:
    response = person.get(BASE + "runs/r1", headers={"Accept": "application/json"})
    assert response["Content-Type"] == "application/json"
    assert response["X-Content-Type-Options"] == "nosniff"


def _quoted(text: str) -> str:
    from urllib.parse import quote

    return quote(text, safe="")


def test_pages_work_where_the_filters_templates_are_not_installed(person: Client, settings, engine) -> None:
    settings.INSTALLED_APPS = [app for app in settings.INSTALLED_APPS if app != "django_filters"]
    assert re.search("<title>", look(person, "runs")[1])


def test_a_link_in_a_mail_offers_an_empty_box(engine: FlowEngine) -> None:
    """Whoever presses the button unread sends nothing, and nothing is no answer."""
    engine.start("approval", {"token": "tok"}, run_id="r1")
    _, text = look(Client(headers=HTML), "callbacks/tok")
    assert re.search(r"<textarea[^>]*name=\"_content\"[^>]*>\s*</textarea>", text)


def test_the_form_of_a_hook_offers_an_approval(person: Client, engine: FlowEngine) -> None:
    engine.start("approval", run_id="r1")
    _, text = look(person, "runs/r1/hooks/decision")
    assert "&quot;approved&quot;: true" in text


def test_what_the_raw_form_offers_for_a_start_is_good_enough(api: APIClient) -> None:
    offered = {"workflow": "echo", "input": None, "run_id": "", "subject": "", "labels": {}}
    assert post(api, "runs", offered).status_code == 201


@pytest.mark.parametrize(
    "path", ["", "runs", "hooks", "runs/r1", "runs/r1/cancel", "runs/r1/children", "callbacks/tok"]
)
def test_the_pages_work_under_a_strict_policy(person: Client, engine: FlowEngine, path: str) -> None:
    engine.start("approval", {"token": "tok"}, run_id="r1")
    page = Page(person.get(BASE + path).content.decode())
    assert (page.running, page.styled) == ([], [])


def test_a_button_logs_out(person: Client) -> None:
    page, _ = look(person, "runs")
    [action] = [form["action"] for form in page.forms if "logout" in form.get("action", "")]
    token = page.fields["csrfmiddlewaretoken"]
    assert person.post(action, {"csrfmiddlewaretoken": token}).status_code == 302
    _, text = look(person, "runs", status=403)
    assert "/api-auth/login/?next=" in text


def test_the_projects_own_renderers_stay_its_own(person: Client, monkeypatch) -> None:
    from rest_framework.renderers import BrowsableAPIRenderer, JSONRenderer

    from flow_app.api.views.base import FlowView

    class Theirs(BrowsableAPIRenderer):
        template = "rest_framework/base.html"

    monkeypatch.setattr(FlowView, "renderer_classes", [JSONRenderer, Theirs])
    assert "flow_app/api.css" not in look(person, "runs")[1]
    monkeypatch.setattr(FlowView, "renderer_classes", [JSONRenderer, BrowsableAPIRenderer])
    assert "flow_app/api.css" in look(person, "runs")[1]
    monkeypatch.setattr(FlowView, "renderer_classes", [JSONRenderer])
    assert person.get(BASE + "runs")["Content-Type"] == "application/problem+json"  # HTML is not to be had
