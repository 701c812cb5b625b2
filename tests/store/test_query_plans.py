"""What the scheduler asks finds its rows by an index: its cost depends on what is due, not on what is open."""

from __future__ import annotations

from datetime import timedelta

import pytest

from flow_app.core.ports import EventStore
from flow_app.models import Run, StepExecution
from flow_app.models.keys import text_key
from flow_app.store import DjangoEventStore
from tests.store.plans import analyze, plans

pytestmark = pytest.mark.django_db(transaction=True)

OPEN = 3000
GRACE = timedelta(seconds=30)


@pytest.fixture
def store() -> EventStore:
    """A store in which many runs wait and many steps are out; one of each is due."""
    store = DjangoEventStore()
    now = store.clock.now()
    times = [now - GRACE, *(now + timedelta(hours=1, seconds=number) for number in range(1, OPEN))]
    runs = [
        Run(
            run_id=f"r{number}", run_key=text_key(f"r{number}"), workflow="w", version="1", status="suspended",
            last_sequence=3, open_waits=1, timer_at=at, wake_at=at, wake_reason="timer", created_at=now,
        )
        for number, at in enumerate(times)
    ]  # fmt: skip
    Run.objects.bulk_create(runs, batch_size=500)
    keys = Run.objects.order_by("wake_at").values_list("id", flat=True)
    steps = [
        StepExecution(
            run_id=key, step_id="s", step_key=text_key("s"), attempt=1, step_name="s", input="null",
            retry='{"max_attempts":1,"delay_ms":0}', spec="{}", wake_at=at,
        )
        for key, at in zip(keys, times, strict=True)
    ]  # fmt: skip
    StepExecution.objects.bulk_create(steps, batch_size=500)
    analyze("flow_app_run", "flow_app_stepexecution")
    return store


def test_due_runs_are_found_by_the_index_on_their_wake_up(store):
    with plans() as asked, store.transaction():
        assert [due.run_id for due in store.take_due(limit=100, grace=GRACE)] == ["r0"]
    (plan,) = asked.texts
    assert "flow_run_wake_idx" in plan
    assert "Sort" not in plan
    assert "TEMP B-TREE" not in plan
    assert "filesort" not in plan


def test_due_steps_are_found_by_the_index_on_their_wake_up(store):
    with plans() as asked, store.transaction():
        assert [due.run_id for due in store.take_due_steps(limit=100, grace=GRACE)] == ["r0"]
    plan, runs = asked.texts
    assert "flow_execution_wake_idx" in plan
    assert "Sort" not in plan
    assert "TEMP B-TREE" not in plan
    assert "filesort" not in plan
    assert "flow_run_wake_idx" not in runs  # by their keys


def test_the_next_wake_up_is_read_off_the_ends_of_the_indexes(store):
    with plans() as asked:
        assert store.next_wake() < store.clock.now()
        assert store.next_step_wake() < store.clock.now()
    runs, steps = asked.texts
    assert "flow_run_wake_idx" in runs
    assert "flow_execution_wake_idx" in steps or "optimized away" in steps
