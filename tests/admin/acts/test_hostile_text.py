"""Markup in every field that a workflow or a caller controls, on every page; and a strict Content-Security-Policy."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import pytest
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from flow_app import HookCallbackRoute, HookMetadata, RetryPolicy, WorkflowProgress, get_engine, step, workflow
from flow_app.core.policy import ChildOperationReference
from flow_app.errors import FlowError
from flow_app.models import Hook, Run
from tests.admin.acts import flows, pages
from tests.admin.acts.audit import HOSTILE, problems
from tests.admin.acts.people import person
from tests.admin.acts.test_permissions import ACTS, PAGES, address

pytestmark = pytest.mark.django_db(transaction=True)

#: How each hostile run ends up.
STATES = ("waiting", "blocked", "failed", "completed", "cancelled", "retrying")


def register() -> None:
    @step(f"step {HOSTILE}", retry=RetryPolicy.fixed(2, flows.HOUR))
    def fails() -> None:
        raise ValueError(HOSTILE)

    @step(f"good {HOSTILE}")
    def works(value: Any) -> Any:
        return value

    @workflow(f"flow {HOSTILE}", version=f"1 {HOSTILE}")
    def hostile(ctx: Any) -> Any:
        """Does what its input says, and names everything badly."""
        if ctx.cancellation_request is not None:
            return ctx.cancel()
        if not ctx.step_completed(HOSTILE):
            return ctx.schedule_step(HOSTILE, works, {HOSTILE: [HOSTILE]})
        if ctx.progress(HOSTILE) is None:
            return ctx.record_progress(WorkflowProgress(HOSTILE, 1, 2, HOSTILE, {HOSTILE: HOSTILE}))
        if ctx.child_operation(HOSTILE) is None:
            return ctx.link_child_operation(
                ChildOperationReference(HOSTILE, HOSTILE, HOSTILE, metadata={HOSTILE: HOSTILE})
            )
        return _end(ctx)

    def _end(ctx: Any) -> Any:
        match ctx.input["state"]:
            case "blocked":
                raise ValueError(HOSTILE)
            case "failed":
                return ctx.fail(HOSTILE)
            case "completed":
                return ctx.complete({HOSTILE: HOSTILE})
            case "retrying":
                return ctx.schedule_step(f"r {HOSTILE}", fails)
        if ctx.hook_received(HOSTILE):
            return ctx.complete(ctx.hook_payload(HOSTILE))
        if not ctx.wait_scheduled(HOSTILE):
            return ctx.wait_until(HOSTILE, ctx.input["until"])
        return ctx.create_hook(HOSTILE, metadata=metadata().to_value())


def metadata() -> HookMetadata:
    return (
        HookMetadata("human_approval", HOSTILE, HookCallbackRoute.post(f"/{HOSTILE}"))
        .with_label(HOSTILE, HOSTILE)
        .with_data(HOSTILE, {HOSTILE: HOSTILE})
    )


def hostile_run(state: str) -> Run:
    engine = get_engine()
    register()
    try:
        engine.start(
            f"flow {HOSTILE}",
            {"state": state, "until": timezone.now() + flows.HOUR, HOSTILE: HOSTILE},
            run_id="r1",
            subject=HOSTILE,
            labels={HOSTILE: HOSTILE},
            actor=HOSTILE,
        )
    except FlowError:
        assert state == "blocked"
    if state == "cancelled":
        engine.request_cancellation("r1", HOSTILE, actor=HOSTILE)
    run = Run.objects.get(run_id="r1")
    assert run.status == {"waiting": "suspended", "blocked": "running", "retrying": "suspended"}.get(state, state)
    return run


def check(client: Any, url: str, **data: Any) -> str:
    response = client.post(url, data, follow=True) if data else client.get(url)
    assert response.status_code == 200, url
    page = response.content.decode()
    assert problems(page) == [], url
    return page


@pytest.fixture
def root():
    """Somebody who may see all, and has a bad name himself."""
    client = Client()
    client.force_login(person(HOSTILE, is_superuser=True, first_name=HOSTILE, last_name=HOSTILE))
    return client


@pytest.mark.parametrize("state", STATES)
def test_every_page_shows_text_as_text(root, state):
    run = hostile_run(state)
    hook = Hook.objects.filter(run=run).first()
    for name, allowed in PAGES.items():
        if allowed and (hook is not None or "_hook_" not in name or name.endswith("changelist")):
            check(root, address(name, run, hook or Hook(pk=0)))
    for name in ACTS:
        target = hook if name in ("approve", "reject", "answer", "withdraw") else run
        if target is not None:
            check(root, pages.act(target, name))
    check(root, reverse("admin:index"))


def test_the_page_of_a_waiting_run_shows_what_it_hides_nowhere(root):
    """The checks above would also pass on pages that show nothing."""
    page = check(root, pages.run_page(hostile_run("waiting")))
    assert page.count("&lt;hostile onclick=") >= 5


def test_acts_and_their_messages(root):
    run = hostile_run("waiting")
    hook = Hook.objects.get(run=run)
    check(root, pages.act(hook, "answer"), payload=f"{{ {HOSTILE}")
    check(root, pages.act(run, "cancel"), reason=HOSTILE, back=HOSTILE)
    check(root, pages.act(run, "cancel"), reason=f"other {HOSTILE}")
    check(root, pages.act(hook, "approve"), back="run")
    check(root, reverse("admin:flow_app_run_history", args=[run.pk]))
    check(root, reverse("admin:index"))


def test_decided_hooks(root):
    hook = Hook.objects.get(run=hostile_run("waiting"))
    get_engine().resume_hook("r1", HOSTILE, {HOSTILE: HOSTILE}, actor=HOSTILE)
    check(root, f"{pages.inbox()}?state=all")
    check(root, reverse("admin:flow_app_hook_change", args=[hook.pk]))
    check(root, pages.act(hook, "reject"), back="run")


@pytest.mark.parametrize("action", ["cancel", "force_cancel", "run_now", "pause"])
def test_acts_on_many(root, action):
    run = hostile_run("waiting")
    data = {"action": action, ACTION_CHECKBOX_NAME: [run.pk]}
    check(root, pages.runs(), **data)
    check(root, pages.runs(), **data, confirmed="yes", reason=HOSTILE)


def test_the_form_that_starts_runs(root):
    register()
    filled = "&".join(f"{name}={quote(HOSTILE)}" for name in ("workflow", "subject", "input"))
    check(root, f"{pages.start()}?{filled}")
    fields = dict.fromkeys(("workflow", "input", "run_id", "subject", "labels"), HOSTILE)
    check(root, pages.start(), **fields)
    fields |= {"workflow": "asks", "input": "null", "labels": f"{HOSTILE}=1"}
    check(root, pages.start(), **fields)
    check(root, pages.start(), **{**fields, "run_id": "r7"})
    assert Run.objects.get(run_id="r7").subject == HOSTILE
    check(root, pages.start(), **{**fields, "run_id": "r7", "input": f'["{"x" * 9}"]'})


@pytest.mark.parametrize("name", ["subject", "label", "workflow", "version", "q", "status", "attention"])
def test_what_is_asked_of_the_lists(root, name):
    hostile_run("waiting")
    for url, status in ((pages.runs(), 200), (pages.inbox(), 200 if name == "q" else 400)):
        response = root.get(f"{url}?{name}={quote(HOSTILE)}", follow=True)
        assert response.status_code == status
        assert problems(response.content.decode()) == []


def test_the_audit_would_find_something():
    assert problems(HOSTILE)
    for page in ("<script>1</script>", '<p style="x">', "<a onclick=x>", '<a href="javascript:x">', "<style></style>"):
        assert len(problems(page)) == 1
    assert problems('<script src="/static/a.js"></script><a href="/x">') == []
