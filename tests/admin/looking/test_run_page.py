from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

import pytest
from django.contrib.auth import get_user_model
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from flow_app import HookMetadata, RetryPolicy, WorkflowProgress, get_engine, workflow
from flow_app.admin import HookAdmin, RunAdmin, run_page
from flow_app.core.events import StepCreated, StepRetrying, StepStarted
from flow_app.core.payload import Payload
from flow_app.models import Hook, Run, StepExecution
from flow_app.store import DjangoEventStore
from flow_app.templatetags.flow_app_moments import moment
from tests.admin.looking import stories
from tests.store.support import add, begin

pytestmark = pytest.mark.django_db(transaction=True)

#: No page of a run is larger than this, whatever its history.
BOUND = 400_000


def shown(client, run, query: str = "") -> str:
    response = client.get(stories.page(run, query))
    assert response.status_code == 200
    return response.content.decode()


def test_the_headline_says_what_the_run_waits_for_and_until_when(boss):
    run = stories.run_of("order", {"until": timezone.now() + timedelta(days=2)})
    page = boss.get(stories.page(run)).context["page"]
    assert page.headline.startswith("Waits for approval “approval” since ")
    assert ", expires " in page.headline
    assert "A decision moves it on, or its deadline" in page.why


def test_a_timer_a_retry_a_block_and_an_end_each_have_their_sentence(boss):
    def headline(name: str) -> str:
        return boss.get(stories.page(stories.run_of(name))).context["page"].headline

    assert re.match(r"Waits in “nap” since .*, until ", headline("nap"))
    assert re.match(r"Tries step “s” again .*, attempt 2: ValueError: not yet", headline("tries"))
    assert re.match(r"Blocked since .* \(runtime\): .*cannot decide", headline("stuck"))
    assert re.match(r"Failed .*, after .*: ValueError: the machine is on fire", headline("fails"))


def test_input_output_progress_and_history_are_there(boss):
    run = stories.run_of("order", {"amount": 4711})
    get_engine().resume_hook(run.run_id, "approval", {"approved": True}, actor="grace")
    text = shown(boss, run)
    assert "4711" in text
    assert "&quot;approved&quot;: true" in text
    assert "half of it" in text
    assert "by grace" in text
    assert "hook_received" in text
    assert boss.get(stories.page(run)).context["page"].headline.startswith("Completed ")


def test_who_may_not_see_payloads_sees_all_but_them(viewer):
    run = stories.run_of("order", {"amount": "a-secret-amount"})
    get_engine().resume_hook(run.run_id, "approval", {"because": "a-secret-reason"}, actor="grace")
    text = shown(viewer, run)
    assert "a-secret" not in text
    assert "hook_received" in text
    assert "by grace" in text


@pytest.mark.parametrize(("person", "sees"), [("viewer", False), ("boss", True)])
def test_hooks_are_shown_to_who_may_see_hooks(request, person, sees):
    run, client = stories.run_of("order"), request.getfixturevalue(person)
    begin = Hook.objects.get(run=run).token_digest.removeprefix("sha256:")[:8]
    for url in (stories.page(run), stories.live(run)):
        response = client.get(url)
        assert bool(response.context["page"].hooks) is sees
        text = response.content.decode()
        assert [begin in text, "order:7" in text, "<h2>Hooks" in text] == [sees] * 3


def test_a_project_that_shows_some_hooks_shows_no_others_on_the_page_of_a_run(boss, monkeypatch):
    run = stories.many_hooks(3)
    few = Hook.objects.exclude(hook_id="h1")
    monkeypatch.setattr(HookAdmin, "get_queryset", lambda admin, request: few)
    assert [hook.hook_id for hook in boss.get(stories.page(run)).context["page"].hooks] == ["h2", "h0"]


def test_values_named_like_secrets_are_never_shown(boss):
    run = stories.run_of("order", {"api_key": "sk-123", "nested": [{"Password": "hunter2"}], "monkey": "fine"})
    text = shown(boss, run)
    assert "sk-123" not in text
    assert "hunter2" not in text
    assert "fine" in text


def test_a_project_may_redact_in_its_own_way(boss, monkeypatch):
    monkeypatch.setattr(RunAdmin, "redact", staticmethod(lambda value: "(nothing)"))
    assert "4711" not in shown(boss, stories.run_of("order", {"amount": 4711}))


def test_tokens_are_masked(boss):
    run = stories.run_of("order")
    digest = Hook.objects.get(run=run).token_digest
    text = shown(boss, run)
    assert digest not in text
    assert digest.removeprefix("sha256:")[:8] in text
    assert digest.removeprefix("sha256:")[:12] not in text


def test_parents_and_children_are_links(boss):
    parent, child = stories.run_of("order", run_id="parent"), stories.run_of("nap", run_id="child")
    stories.linked(parent, child)
    assert stories.page(child) in shown(boss, parent)
    assert stories.page(parent) in shown(boss, child)


def test_a_long_history_takes_few_queries_and_a_small_page(boss):
    def measured(run) -> tuple[int, int]:
        with CaptureQueriesContext(connection) as seen:
            text = shown(boss, run)
        return len(seen), len(text)

    queries, size = measured(stories.run_of("order"))
    long_queries, long_size = measured(stories.long_run(1700))  # 5,102 events
    assert long_queries <= queries < 20
    assert max(size, long_size) < BOUND


def test_large_outputs_neither_are_read_nor_shown_whole(boss):
    run = stories.long_run(20, size=300_000)
    with CaptureQueriesContext(connection) as seen:
        response = boss.get(stories.page(run))
    assert len(response.content) < BOUND
    assert "characters: too long to be shown here" in response.content.decode()
    assert [row.name for row in response.context["page"].picture.rows] == [f"s{n}" for n in range(20)]
    assert len(seen) < 20


def test_many_hooks_and_much_progress_are_bounded(boss):
    assert len(shown(boss, stories.many_hooks(500))) < BOUND

    @workflow("counts")
    def counts(ctx):
        for number in range(120):
            if ctx.progress(f"p{number}") is None:
                return ctx.record_progress(WorkflowProgress(f"p{number}", number, 120))
        return ctx.complete(None)

    run_id = get_engine().start("counts")
    page = boss.get(stories.page(Run.objects.with_id(run_id).get())).context["page"]
    assert len(page.progress) == 50


def test_what_the_picture_tells_is_there_in_words_too(boss):
    run = stories.run_of("tries")
    text = shown(boss, run)
    [row] = boss.get(stories.page(run)).context["page"].picture.rows
    assert [line.partition(",")[0] for line in row.told] == ["failed", "waiting to be tried again"]
    assert "attempt 1" in row.told[0]
    assert "ValueError: not yet" in row.told[0]
    assert re.search(r'<details id="flow-told".*<li id="flow-lane-1">.*attempt 1.*</details>', text, re.DOTALL)
    assert '<a href="#flow-lane-1" tabindex="-1"' in text
    assert 'aria-details="flow-told"' in text


def test_every_colour_of_the_picture_stands_in_the_legend(boss):
    text = shown(boss, stories.run_of("tries"))
    legend = text[text.index("flow-legend") : text.index('<details id="flow-told"')]
    for state in ("queued", "running", "backoff", "waiting", "done", "failed", "cancelled"):
        assert f"flow-{state}" in legend


def test_long_errors_of_many_attempts_are_bounded(boss):
    store = DjangoEventStore()
    policy = RetryPolicy.fixed(2000, timedelta(seconds=1))
    row = begin(store, "unlucky", *(StepCreated(f"s{n}", "say", Payload.of(n), policy) for n in range(40)))
    at, error = store.clock.now(), "<" * 3000
    for attempt in range(1, 31):
        for n in range(40):
            events = (StepStarted(f"s{n}", attempt), StepRetrying(f"s{n}", attempt, error, at))
            row = add(store, row, *events)
    run = Run.objects.with_id("unlucky").get()
    assert len(boss.get(stories.page(run)).content) < 4 * BOUND


def test_the_history_has_pages(boss):
    run = stories.long_run(60)  # 182 events
    history = boss.get(stories.page(run)).context["page"].history
    seen = [line.mark.sequence for line in history.lines]
    while history.older:
        history = boss.get(stories.page(run, f"?upto={history.older}")).context["page"].history
        seen += [line.mark.sequence for line in history.lines]
    assert seen == list(range(182, 0, -1))
    assert history.newer is not None


@pytest.mark.slow
def test_a_history_of_a_hundred_thousand_events_is_as_quick_and_light(boss):
    """Any page of it: as many queries as for a short run, and no more rows than it shows or draws."""
    short, run = stories.run_of("order"), stories.long_run(33_333)
    assert run.last_sequence > 100_000

    def looked(run: Run, query: str = "") -> tuple[int, int]:
        with CaptureQueriesContext(connection) as seen:
            text = shown(boss, run, query)
        return len(seen), len(text)

    few, _ = looked(short)
    for query in ("", "?upto=50000", "?upto=50", "?lanes=1"):
        queries, size = looked(run, query)
        assert queries <= few, query
        assert size < BOUND, query
    page = boss.get(stories.page(run, "?upto=50000")).context["page"]
    assert [line.mark.sequence for line in page.history.lines] == list(range(50_000, 49_950, -1))
    assert (page.history.newer, page.history.older, page.is_picture_whole) == (50_050, 49_950, False)
    assert page.picture.total <= run_page.MARKS


@pytest.mark.parametrize(
    "query", ["?upto=x", "?upto=0", "?upto=-1", f"?upto={10**40}", "?lanes=x", "?lanes=0", "?lanes=9999", "?upto=²"]
)
def test_nonsense_in_the_address_is_a_page_all_the_same(boss, query):
    shown(boss, stories.run_of("order"), query)


def test_the_timeline_has_pages(boss):
    run = stories.long_run(90)
    last = boss.get(stories.page(run)).context["page"].picture
    assert (last.page, last.pages, last.total, len(last.rows)) == (3, 3, 90, 10)
    first = boss.get(stories.page(run, "?lanes=1")).context["page"].picture
    assert [row.name for row in first.rows] == [f"s{n}" for n in range(40)]


def test_markup_from_workflows_and_callers_is_text(boss):
    @workflow("<b>evil")
    def evil(ctx):
        if ctx.cancellation_request is not None:
            return ctx.cancel()
        if not ctx.step_completed(stories.EVIL):
            return ctx.schedule_step(stories.EVIL, "say", {stories.EVIL: stories.EVIL})
        if ctx.progress(stories.EVIL) is None:
            return ctx.record_progress(WorkflowProgress(stories.EVIL, 1, 2, stories.EVIL))
        metadata = HookMetadata.human_approval(stories.EVIL).with_label(stories.EVIL, stories.EVIL)
        return ctx.create_hook(stories.EVIL, metadata=metadata)

    named = {"version": stories.EVIL, "subject": stories.EVIL, "labels": {stories.EVIL: stories.EVIL}}
    run_id = get_engine().start("<b>evil", stories.EVIL, **named)
    get_engine().request_cancellation(run_id, stories.EVIL, actor=stories.EVIL)
    for run in (Run.objects.with_id(run_id).get(), stories.run_of("tries")):
        text = shown(boss, run)
        assert "<script>alert" not in text
        assert "<img src=x" not in text
        assert "<b>evil" not in text
        assert "--></title>" not in text
        assert "&lt;script&gt;alert" in text


@pytest.mark.parametrize(("count", "more"), [(100, None), (101, "and one more label"), (150, "and 50 more labels")])
def test_of_many_labels_the_first_are_shown_and_the_others_counted(boss, count, more):
    text = shown(boss, stories.run_of("order", labels={f"label-{number}": "x" for number in range(count)}))
    labels = {int(number) for number in re.findall(r"<code>label-(\d+)=x</code>", text)}
    assert len(labels) == 100
    assert ("more label" in text) == (more is not None)
    assert more is None or more in text


def test_no_script_or_style_stands_in_the_pages(boss):
    run = stories.run_of("order")
    for url in (stories.page(run), stories.live(run)):
        ours = boss.get(url).content.decode()
        assert not re.search(r"<script(?![^>]*\bsrc=)(?![^>]*application/json)[^>]*>", ours)
        assert not re.search(r"<style|\sstyle=|\son[a-z]+=", ours)


def test_text_that_no_database_or_browser_takes_is_shown_somehow(boss):
    run = stories.run_of("order", {"odd": "\x00 \ud800 \u202e"})
    assert "4711" not in shown(boss, run)


# --- live -----------------------------------------------------------------------------------------------------------


def test_an_open_run_is_watched_and_an_ended_one_is_not(boss):
    run = stories.run_of("order")
    assert f'data-flow-live="{stories.live(run)}"' in shown(boss, run)
    get_engine().resume_hook(run.run_id, "approval", {})
    assert "data-flow-live" not in shown(boss, run)


def test_the_live_part_comes_when_something_has_changed(boss):
    run = stories.run_of("order")
    version = boss.get(stories.page(run)).context["page"].version
    with CaptureQueriesContext(connection) as seen:
        assert boss.get(stories.live(run, f"?version={version}")).status_code == 204
    assert len(seen) <= 3
    get_engine().resume_hook(run.run_id, "approval", {})
    answer = boss.get(stories.live(run, f"?version={version}"))
    assert answer.status_code == 200
    text = answer.content.decode()
    assert "Completed" in text
    assert "<html" not in text
    assert "data-flow-live" not in text


def test_who_paused_a_run_is_said(boss):
    run = stories.run_of("order")
    get_engine().pause(run.run_id, actor="<b>grace</b>")
    text = shown(boss, run)
    assert "by &lt;b&gt;grace&lt;/b&gt;." in text
    get_engine().unpause(run.run_id)
    assert "grace" not in shown(boss, run)


def test_pausing_changes_the_live_part_though_it_is_no_event(boss):
    run = stories.run_of("order")
    version = boss.get(stories.page(run)).context["page"].version
    get_engine().pause(run.run_id)
    assert boss.get(stories.live(run, f"?version={version}")).status_code == 200


def test_who_may_not_look_gets_no_page_and_no_live_part(client, viewer):
    run = stories.run_of("order")
    for url in (stories.page(run), stories.live(run), stories.runs("overview/")):
        assert client.get(url).status_code == 302  # to the login
    nobody = get_user_model().objects.create(username="nobody", is_staff=True)
    client.force_login(nobody)
    for url in (stories.page(run), stories.live(run), stories.runs(), stories.runs("overview/")):
        assert client.get(url).status_code == 403
    assert viewer.get(stories.page(run).replace(str(run.pk), "999999")).status_code == 404
    assert viewer.get(stories.live(run).replace(str(run.pk), "999999")).status_code == 404


def test_steps_with_the_workers_are_named_with_their_worker(boss):
    run = stories.run_of("order")
    StepExecution.objects.create(
        run=run, step_id="far away", attempt=2, step_name="say", input="1", retry="{}", spec="{}", worker="celery@one"
    )
    Run.objects.filter(pk=run.pk).update(steps_out=1)
    text = shown(boss, run)
    assert "far away" in text
    assert "celery@one" in text


@pytest.mark.parametrize("use_tz", [True, False])
def test_times_are_in_the_zone_of_the_site(settings, use_tz):
    settings.USE_TZ, settings.TIME_ZONE = use_tz, "Europe/Berlin"
    assert ">March 4, 2026 13:00:05<" in moment(datetime(2026, 3, 4, 12, 0, 5, tzinfo=UTC))
    assert moment(None) == ""
