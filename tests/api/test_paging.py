"""A page of runs: what the view put on its queryset is on the rows, too."""

from __future__ import annotations

import pytest
from django.db.models.functions import Upper
from rest_framework.pagination import CursorPagination
from rest_framework.request import Request

from flow_app.api.paging import Newest
from flow_app.engine import FlowEngine
from flow_app.models import Run

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def page(rf, engine: FlowEngine):
    """The first page of a queryset, of three runs."""
    for number in range(3):
        engine.start("approval", run_id=f"r{number}", subject="order:7", labels={"team": "red"})
    return lambda runs: Newest().paginate_queryset(runs, Request(rf.get("/")))


def test_a_page_has_what_the_project_asked_for(page, django_assert_num_queries) -> None:
    runs = Run.objects.annotate(loud=Upper("run_id")).prefetch_related("label_rows")
    with django_assert_num_queries(3):  # keys, rows, labels
        found = page(runs)
    with django_assert_num_queries(0):
        shown = [(run.loud, [label.value for label in run.label_rows.all()]) for run in found]
    assert shown == [("R2", ["red"]), ("R1", ["red"]), ("R0", ["red"])]


def test_what_has_changed_since_its_key_was_read_is_filtered_again(page, monkeypatch) -> None:
    read_keys = CursorPagination.paginate_queryset

    def and_then_one_changes(*args):
        keys = read_keys(*args)
        Run.objects.filter(run_id="r1").update(subject="order:8")
        return keys

    monkeypatch.setattr(CursorPagination, "paginate_queryset", and_then_one_changes)
    assert [run.run_id for run in page(Run.objects.about("order:7"))] == ["r2", "r0"]
