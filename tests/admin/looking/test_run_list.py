from __future__ import annotations

import json
from datetime import timedelta
from importlib import import_module
from typing import Any

import pytest
from django.apps import apps
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from flow_app import HookMetadata, WorkflowProgress, get_engine, workflow
from flow_app.core.payload import Payload
from flow_app.core.ports import WakeReason
from flow_app.core.snapshot import RunStatus
from flow_app.models import Hook, Run
from flow_app.models.hook import kind_of
from tests.admin.looking import stories

pytestmark = pytest.mark.django_db(transaction=True)

INBOX = "/admin/flow_app/hook/"
SEARCH = f"{INBOX}?q=label-1=x"


def text_of(client: Client, query: str = "") -> str:
    response = client.get(stories.runs(query))
    assert response.status_code == 200
    return response.content.decode()


def ids_on(client: Client, query: str = "") -> list[str]:
    response = client.get(stories.runs(query))
    assert response.status_code == 200, query
    return [run.run_id for run in response.context["cl"].result_list]


def test_each_run_says_what_it_does(boss):
    stories.run_of("order", subject="order:7")
    stories.run_of("nap")
    stories.run_of("stuck")
    stories.run_of("tries")
    stories.run_of("fails")
    text = text_of(boss)
    assert "Waits for approval “approval” since" in text
    assert "for a timer, until" in text
    assert "Blocked since" in text
    assert "cannot decide" in text
    assert "Tries a step again" in text
    assert "the machine is on fire" in text
    assert "1/2" in text  # progress


@pytest.mark.parametrize(
    ("metadata", "word"),
    [
        ({"kind": "human_approval"}, "approval"),
        ({"kind": "callback", "data": {"kind": "human_approval"}}, "hook"),
        ("human_approval", "hook"),
        ({"kind": ["human_approval"]}, "hook"),
        ({"kind": "human_approval", "data": {"long": "x" * 300_000}}, "approval"),
    ],
)
def test_lists_and_pages_have_one_word_for_what_a_run_waits_for(boss, metadata, word):
    @workflow("asks")
    def asks(ctx):
        return ctx.create_hook("boss", metadata=ctx.input)

    get_engine().start("asks", metadata, run_id="r1")
    run = Run.objects.with_id("r1").get()
    for url in (stories.runs(), stories.page(run)):
        assert f"Waits for {word} “boss” since" in boss.get(url).content.decode()


def test_a_migration_names_the_kinds_of_hooks_that_wait(boss, monkeypatch):
    """Batch by batch, and as a worker of this version names them."""
    run, ended, other = (stories.run_of("order", run_id=run_id) for run_id in ("waits", "ended", "other"))
    get_engine().resume_hook(ended.run_id, "approval", 1)
    odd = {"kind": "\x00\ud800" + 300 * "k"}
    Hook.objects.filter(run=other.pk).update(metadata=json.dumps(odd))
    Hook.objects.update(kind="")
    before = list(Hook.objects.order_by("pk").values("metadata", "status", "token_digest"))
    migration = import_module("flow_app.migrations.0007_what_lists_show")
    monkeypatch.setattr(migration, "_AT_A_TIME", 1)
    with connection.schema_editor() as editor:
        migration.name_kinds(apps, editor)
    assert Hook.objects.get(run=run).kind == "human_approval"
    assert Hook.objects.get(run=other).kind == kind_of(Payload(odd))
    assert Hook.objects.get(run=ended).kind == ""
    assert list(Hook.objects.order_by("pk").values("metadata", "status", "token_digest")) == before


def test_lists_are_as_light_when_payloads_are_a_megabyte(boss):
    large = "x" * 1_000_000

    @workflow("large")
    def large_flow(ctx):
        if ctx.progress("p") is None:
            return ctx.record_progress(WorkflowProgress("p", 1, 2, large[:100_000], details=large[:500_000]))
        labels = {f"label-{number}": "x" * 9_000 for number in range(100)}
        return ctx.create_hook("boss", metadata=HookMetadata("k", large[:1000], labels=labels))

    def seen(url: str) -> tuple[int, int]:
        with CaptureQueriesContext(connection) as queries:
            response = boss.get(url)
        assert response.status_code == 200
        return len(queries), len(response.content)

    get_engine().start("large", "small", run_id="r0", labels={"l": "x"})
    few = {url: seen(url)[0] for url in (stories.runs(), INBOX, SEARCH)}
    for number in range(1, 6):
        get_engine().start("large", large, run_id=f"r{number}", labels={"l": large[:200]})
    for url, queries in few.items():
        assert seen(url)[0] == queries, url
        assert seen(url)[1] < 100_000, url


@pytest.mark.parametrize(
    ("columns", "word"),
    [
        ({"status": "pending", "wake_reason": "runnable"}, "pending"),
        ({"status": "running", "wake_reason": "runnable"}, "running"),
        ({"status": "suspended", "wake_reason": "hook"}, "waiting"),
        ({"status": "cancelling", "wake_reason": "runnable"}, "cancelling"),
        ({"status": "completed"}, "completed"),
        ({"status": "failed", "outcome": "timed_out"}, "timed out"),
        ({"status": "cancelled"}, "cancelled"),
        ({"status": "running", "wake_at": timezone.now() - timedelta(hours=1)}, "overdue"),
        ({"status": "running", "blocked_code": "x", "blocked_since": timezone.now()}, "blocked"),
        ({"status": "running", "wake_reason": "no_worker"}, "no worker"),
        ({"status": "running", "paused_at": timezone.now()}, "paused"),
    ],
)
def test_a_status_is_a_word_and_a_sign_besides_a_colour(boss, columns, word):
    stories.many_runs(1, **columns)
    text = text_of(boss)
    assert f"</span> {word}</span>" in text
    assert '<span aria-hidden="true">' in text


def test_the_list_counts_nothing_and_reads_no_payload(boss):
    stories.run_of("order")
    stories.run_of("stuck")
    with CaptureQueriesContext(connection) as seen:
        text_of(boss)
    asked = [query["sql"].lower() for query in seen.captured_queries if "flow_app_" in query["sql"]]
    assert asked
    for sql in asked:
        assert "count(" not in sql
        for column in ("payload", "metadata", "received", "labels", "progress_message", "body", "meta"):
            assert f'"{column}"' not in sql
            assert f"`{column}`" not in sql


def test_a_page_takes_as_many_queries_for_one_run_as_for_fifty(boss):
    def queries() -> int:
        with CaptureQueriesContext(connection) as seen:
            text_of(boss)
        return len(seen)

    stories.run_of("order")
    one = queries()
    for number in range(50):
        stories.run_of(("order", "nap", "stuck")[number % 3], run_id=f"r{number}")
    assert queries() == one <= 6


def test_pages_go_from_key_to_key_and_back(boss):
    made = [run.run_id for run in stories.many_runs(120)][::-1]
    first = boss.get(stories.runs()).context["cl"]
    assert [run.run_id for run in first.result_list] == made[:50]
    assert first.newer == ""
    second = boss.get(stories.runs(first.older)).context["cl"]
    assert [run.run_id for run in second.result_list] == made[50:100]
    third = boss.get(stories.runs(second.older)).context["cl"]
    assert [run.run_id for run in third.result_list] == made[100:]
    assert third.older == ""
    assert ids_on(boss, third.newer) == made[50:100]
    assert ids_on(boss, second.newer) == made[:50]


def test_a_key_that_is_none_leads_back_to_the_first_page(boss):
    stories.many_runs(1)
    for query in ("?before=x", "?after=-1", f"?before={10**30}"):
        assert boss.get(stories.runs(query)).status_code == 302


def test_a_filter_forgets_the_page(boss):
    stories.many_runs(60)
    changelist = boss.get(stories.runs("?status=completed")).context["cl"]
    assert "status=completed" in changelist.older
    older = boss.get(stories.runs(changelist.older)).context["cl"]
    assert len(older.result_list) == 10
    assert "before" not in older.get_query_string({"workflow": "order"})


def test_filters(boss):
    now = timezone.now()
    old = stories.run_of("order", run_id="waits", subject="order:7", labels={"team": "north"})
    stories.run_of("stuck", run_id="blocked")
    stories.run_of("nap", run_id="naps", subject="order:8", labels={"team": "south"})
    Run.objects.filter(run_id="naps").update(wake_at=now - timedelta(hours=1), version="2", build="b2")
    stories.run_of("nap", run_id="sleeps-on")
    Run.objects.filter(run_id="sleeps-on").update(paused_at=now)
    stories.many_runs(1, wake_at=now, wake_reason=WakeReason.NO_WORKER, status=RunStatus.RUNNING)
    Run.objects.filter(pk=old.pk).update(created_at=now - timedelta(days=30))

    assert ids_on(boss, "?status=suspended") == ["sleeps-on", "naps", "waits"]
    assert ids_on(boss, "?status=open") == ["many-00000", "sleeps-on", "naps", "blocked", "waits"]
    assert ids_on(boss, "?attention=blocked") == ["blocked"]
    assert ids_on(boss, "?attention=overdue") == ["naps"]
    assert ids_on(boss, "?attention=paused") == ["sleeps-on"]
    assert ids_on(boss, "?attention=no_worker") == ["many-00000"]
    assert ids_on(boss, "?workflow=stuck") == ["blocked"]
    assert ids_on(boss, "?version=2") == ["naps"]
    assert ids_on(boss, "?build=b2") == ["naps"]
    assert ids_on(boss, "?build=of-long-ago") == []
    assert ids_on(boss, "?subject=order:7") == ["waits"]
    assert ids_on(boss, "?label=team%3Dsouth") == ["naps"]
    since = (now - timedelta(days=1)).isoformat().replace("+", "%2B")
    assert "waits" not in ids_on(boss, f"?created_at__gte={since}")
    assert ids_on(boss, "?finished_at__isnull=False") == ["many-00000"]


def test_search_is_by_the_beginning_of_the_id(boss):
    stories.run_of("nap", run_id="inv-8821")
    stories.run_of("nap", run_id="inv-9000")
    stories.run_of("nap", run_id="xinv-88")
    assert ids_on(boss, "?q=inv-88") == ["inv-8821"]
    assert ids_on(boss, "?q=inv-") == ["inv-9000", "inv-8821"]
    assert ids_on(boss, "?q=%25") == []


@pytest.mark.parametrize(
    "lookup",
    ["error__contains=x", "blocked_text__regex=x", "labels__contains=x", "events__payload__contains=x", "run_key=x"],
)
def test_nobody_searches_through_what_has_no_index(boss, lookup):
    assert boss.get(stories.runs(f"?{lookup}")).status_code == 400


def test_nothing_can_be_added_changed_or_deleted(boss):
    run = stories.run_of("nap")
    assert boss.get(stories.runs() + "add/").status_code == 403
    assert boss.post(stories.page(run).replace("change", "delete")).status_code == 403
    assert "delete_selected" not in text_of(boss)


def test_markup_from_workflows_is_text(boss):
    stories.run_of("tries", subject=stories.EVIL[:100])
    stories.many_runs(
        1, workflow="<b>w", version="<b>v", build="<b>b", status="running", blocked_code="<b>c",
        blocked_text=stories.EVIL, blocked_since=timezone.now(),
    )  # fmt: skip
    text = text_of(boss)
    assert "<script>alert" not in text
    assert "<img src=x" not in text
    assert "<b>" not in text
    assert "&lt;b&gt;w" in text


def test_an_empty_list_is_a_page(viewer: Any):
    assert ids_on(viewer) == []
