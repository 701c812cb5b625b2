"""Where code failed is on the page of its run, for those who may see payloads."""

from __future__ import annotations

from contextlib import suppress
from datetime import timedelta
from html.parser import HTMLParser
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from flow_app import RetryPolicy, get_engine, step, workflow
from flow_app.admin import RunAdmin
from flow_app.core.events import StepFailed, StepRetrying
from flow_app.models import Event, Run
from flow_app.presenting.marks import read_marks
from flow_app.store import DjangoEventStore
from tests.admin.looking import stories
from tests.admin.looking.test_run_page import BOUND, shown
from tests.markup import raising
from tests.store.support import begin, new

pytestmark = pytest.mark.django_db(transaction=True)


class Unfolded(HTMLParser):
    """The text in each ``<details class="flow-traceback">`` of a page, by its id, as a browser would take it."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: dict[str, str] = {}
        self._id = ""
        self._in_pre = False
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "details":
            stated = dict(attrs)
            self._id = stated["id"] or "" if stated.get("class") == "flow-traceback" else ""
        self._in_pre = tag == "pre" and bool(self._id)

    def handle_endtag(self, tag: str) -> None:
        if tag == "details":
            self._id = ""
        self._in_pre = False

    def handle_data(self, data: str) -> None:
        if self._in_pre:
            self.found[self._id] = self.found.get(self._id, "") + data


def tracebacks(client: Client, run: Run) -> dict[str, str]:
    return Unfolded(shown(client, run)).found


def test_of_what_blocks_a_run(boss):
    run = stories.run_of("stuck")
    (text,) = tracebacks(boss, run).values()
    assert text.startswith("Traceback (most recent call last):\n")
    assert 'in stuck\n    raise ValueError("cannot decide")\n' in text
    assert "Traceback</summary>" in shown(boss, run)


def test_of_the_attempt_that_ended_a_run_and_of_each_in_its_history(boss):
    run = stories.run_of("fails")
    found = tracebacks(boss, run)
    assert list(found) == ["flow-traceback", "flow-traceback-6", "flow-traceback-5"]
    assert len(set(found.values())) == 1
    assert 'in breaks\n    raise ValueError("the machine is on fire")\n' in found["flow-traceback"]


def test_of_an_attempt_that_is_tried_again_in_the_history_alone(boss):
    (name,) = tracebacks(boss, stories.run_of("tries"))
    assert name == "flow-traceback-5"


def test_a_run_without_any_has_no_place_for_one(boss):
    run = stories.run_of("order")
    assert "flow-traceback" not in shown(boss, run)
    get_engine().force_cancel(run.run_id, "enough")
    assert "flow-traceback" not in shown(boss, run)


@pytest.mark.parametrize("story", ["stuck", "fails", "tries"])
def test_who_may_not_see_payloads_sees_what_there_was_before(viewer, story):
    run = stories.run_of(story)
    for text in (shown(viewer, run), viewer.get(stories.live(run)).content.decode()):
        assert "raceback" not in text
        assert "stories.py" not in text
        assert "most recent call" not in text
    assert {"stuck": "cannot decide", "fails": "on fire", "tries": "not yet"}[story] in shown(viewer, run)


def test_a_project_may_redact_them(boss, monkeypatch):
    def hide(value: Any) -> Any:
        is_one = isinstance(value, dict) and "traceback" in value
        return {"traceback": value["traceback"].replace("fire", "****")} if is_one else value

    monkeypatch.setattr(RunAdmin, "redact", staticmethod(hide))
    assert "the machine is on ****" in tracebacks(boss, stories.run_of("fails"))["flow-traceback"]
    monkeypatch.setattr(RunAdmin, "redact", staticmethod(lambda value: "(nothing)"))
    assert tracebacks(boss, stories.run_of("fails", run_id="another")) == {}


def test_markup_in_a_message_and_in_a_line_of_source_is_text(boss):
    raises = raising(stories.EVIL)
    step("evil", retry=RetryPolicy.fixed(2, timedelta(hours=1)))(lambda: raises(None))
    workflow("blocks")(raises)
    workflow("tries-evil")(lambda ctx: ctx.schedule_step("s", "evil"))
    for name in ("blocks", "tries-evil"):
        with suppress(Exception):
            get_engine().start(name, run_id=name)
        run = Run.objects.with_id(name).get()
        page = shown(boss, run)
        for markup in ("<script>alert", "<img src=x", "--></title>", "</pre></details>\n  File", f"# {stories.EVIL}"):
            assert markup not in page
        (text,) = Unfolded(page).found.values()
        assert f'File "{stories.EVIL}.py", line 2, in evil\n    raise ValueError(' in text
        assert f"{stories.EVIL}</pre></details>\n" in text
        assert text.endswith(f"ValueError: {stories.EVIL}\n")


def test_a_page_full_of_them_is_no_larger_than_any_and_takes_no_more_queries(boss):
    """Each gets its share of the room, and its end is what is shown."""
    store = DjangoEventStore()
    frame = '  File "/srv/shop/orders/gateway.py", line 17, in <lambda>\n    return self.send("order", **data)\n'
    text = frame * 150 + "ValueError: the end"
    events = [new(store, StepRetrying("s", n, "ValueError: the end", None), traceback=text) for n in range(1, 3000)]
    row = begin(store, "r", StepFailed("none", 1, "no traceback"))
    for start in range(0, len(events), 100):
        row = store.append(row, events[start : start + 100], change={})
    run = Run.objects.with_id("r").get()
    with CaptureQueriesContext(connection) as seen:
        page = shown(boss, run)
    assert len(page) < BOUND
    found = Unfolded(page).found
    assert len(found) == 50
    assert all(text.startswith("…") and text.endswith("\nValueError: the end") for text in found.values())
    with CaptureQueriesContext(connection) as few:
        shown(boss, stories.run_of("tries"))
    assert len(seen) <= len(few) + 1  # "tries" has another query for what it waits for, or has not


def test_the_timeline_reads_none_of_them():
    store = DjangoEventStore()
    events = [
        new(store, StepFailed("a", 1, "no"), traceback="x" * 16_000),
        new(store, StepFailed("b", 1, "no"), actor="ada", address="::1"),
        new(store, StepFailed("c", 1, "no"), abc=1, actor="bob"),
    ]
    row = store.append(begin(store, "r"), events, change={})
    rows = Event.objects.filter(run=row.key, sequence__gt=2).order_by("sequence")
    with CaptureQueriesContext(connection) as seen:
        marks = read_marks(rows)
    assert [mark.actor for mark in marks] == ["", "ada", ""]
    assert f"{connection.ops.quote_name('meta')}," not in seen[0]["sql"].partition(" FROM ")[0]


def test_one_more_query_at_most(boss):
    def queries(name: str) -> int:
        run = stories.run_of(name)
        shown(boss, run)
        with CaptureQueriesContext(connection) as seen:
            shown(boss, run)
        return len(seen)

    without = queries("order")
    assert max(queries("stuck"), queries("fails"), queries("tries")) <= without + 1 < 20
