"""What an operator sees, and the commands with which he acts."""

from __future__ import annotations

import io
import json
from datetime import timedelta

import pytest
from django.core.management import CommandError, call_command

from flow_app import get_engine, workflow
from flow_app.conf import Options
from flow_app.dispatch import FlowScheduler
from flow_app.dispatch.status import LATE, status_of
from flow_app.errors import ConfigurationError
from flow_app.models import Run, StepExecution
from flow_app.models.keys import text_key
from flow_app.store import InMemoryEventStore
from tests.engine.logbook import inline, of_build, queued
from tests.store.support import LEASE, add, begin, step

HOUR = timedelta(hours=1)
SECOND = timedelta(seconds=1)

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def waiting():
    @workflow("waiting")
    def flow(ctx):
        return ctx.complete() if ctx.hook_payload("h") else ctx.create_hook("h")

    return flow


@pytest.fixture
def broken():
    @workflow("broken")
    def flow(ctx):
        raise ValueError(f"broken in {ctx.run_id}\nand more")

    return flow


def run(*args):
    """A command's exit status, and what it wrote."""
    out, err = io.StringIO(), io.StringIO()
    try:
        call_command(*args, stdout=out, stderr=err)
    except SystemExit as stop:
        return stop.code, out.getvalue() + err.getvalue()
    except CommandError as error:
        return error.returncode, out.getvalue() + err.getvalue() + str(error)
    return 0, out.getvalue() + err.getvalue()


def seen():
    code, text = run("flow_status", "--format=json")
    found = json.loads(text)
    assert found["exit_status"] == code
    return found


def codes(status):
    return [(problem.level, problem.code) for problem in status.problems]


def test_with_nothing_to_do_all_is_well():
    code, text = run("flow_status")
    assert code == 0
    assert text.splitlines() == [
        "Open       0 pending   0 running   0 suspended   0 cancelling   0 paused",
        "Ended      0 completed   0 failed   0 cancelled",
        "Waiting    0 timers   0 hooks   0 retries   0 steps out",
        "Due        0",
        "Scheduler  nothing is due",
    ]
    assert seen()["problems"] == []


def test_runs_are_counted_by_status_and_by_what_they_wait_for(waiting):
    engine = get_engine()
    for run_id in ("a", "b", "c"):
        engine.start(waiting, run_id=run_id)
    engine.resume_hook("a", "h", 1)
    engine.pause("b", actor="ann")
    found = seen()
    assert found["exit_status"] == 0
    runs = found["runs"]
    assert (runs["suspended"], runs["completed"], runs["active_hooks"], runs["running"]) == (2, 1, 2, 0)
    assert [found["paused"][name] for name in ("count", "run_ids", "by")] == [1, ["b"], ["ann"]]
    assert found["builds"] == [{"build": None, "open": 2, "has_route": True}]
    assert "Paused     b (by ann)   oldest 0 s" in run("flow_status")[1]


def test_what_others_wrote_breaks_no_line(waiting):
    @workflow("loud")
    def loud(ctx):
        raise ValueError("red \x1b[31m\rand more\nand more")

    engine = get_engine()
    engine.start(waiting, run_id="a")
    engine.pause("a", actor="ann)\nCRITICAL: \u2028\x1b[31mall is lost")
    with pytest.raises(Exception, match="red"):
        engine.start(loud, run_id="b")
    _code, text = run("flow_status")
    assert "Paused     a (by ann)\\nCRITICAL: \\u2028\\x1b[31mall is lost)   oldest 0 s\n" in text
    assert "blocked by runtime" in text
    assert "red \\x1b[31m." in text
    assert "and more" not in text
    assert all(line.isprintable() for line in text.split("\n"))


def test_what_is_blocked_is_grouped_by_why_and_says_since_when(broken):
    engine = get_engine()
    for number in range(7):
        with pytest.raises(Exception, match="broken"):
            engine.start(broken, run_id=f"r{number}")
    engine.pause("r6")
    (blocked,) = seen()["blocked"]
    assert (blocked["code"], blocked["count"]) == ("runtime", 6)
    assert blocked["run_ids"] == ["r0", "r1", "r2", "r3", "r4"]
    assert "broken in r0" in blocked["text"]
    assert blocked["since"] == engine.row("r0").blocked_since.isoformat()
    code, text = run("flow_status")
    assert code == 1
    assert "WARNING: 6 runs blocked by runtime" in text
    assert "and more" not in text
    assert "manage.py flow_run_now r0 r1" in text


def test_what_is_due_for_long_means_that_no_scheduler_runs(store_on, clock):
    engine = store_on()
    begin(engine.store, "late", wake_at=clock.now() - LATE - SECOND)
    begin(engine.store, "due", wake_at=clock.now())
    status = status_of(engine)
    assert status.scheduler_is_late
    assert (status.overview.due.count, status.overview.overdue.run_ids) == (2, ("late",))
    assert codes(status) == [("critical", "scheduler_late")]
    assert status.exit_status == 2
    assert "one by 61 s" in status.problems[0].text
    assert "flow_scheduler" in status.problems[0].hint
    assert codes(status_of(engine, late=HOUR)) == []


def test_a_run_that_is_driven_is_not_overdue_though_its_wake_up_stayed_behind(store_on, clock):
    engine = store_on()
    begin(engine.store)
    row = engine.store.claim("r1", lease=LEASE)
    add(engine.store, row, step(), epoch=row.lease_epoch, lease_expires_at=clock.now() + HOUR)
    clock.advance(HOUR - SECOND)
    status = status_of(engine)
    assert (status.overview.due.count, codes(status)) == (0, [])
    clock.advance(2 * LATE)
    assert codes(status_of(engine)) == [("critical", "scheduler_late")]


def test_a_paused_run_is_never_overdue(store_on, clock, waiting):
    engine = store_on()
    begin(engine.store)
    engine.pause("r1")
    clock.advance(HOUR)
    assert codes(status_of(engine)) == []


def test_an_overdue_step_means_the_same(store_on, clock):
    engine = store_on()
    row = begin(engine.store, wake_at=None)
    StepExecution.objects.create(
        run_id=row.key, step_id="s", step_key=text_key("s"), attempt=1, wake_at=clock.now() - HOUR
    )
    status = status_of(engine)
    assert (status.overview.steps_out, status.overview.steps_overdue.run_ids) == (1, ("r1",))
    assert codes(status) == [("critical", "scheduler_late")]


def test_builds_that_nobody_runs_are_named_and_those_that_have_ended_are_not(store_on, waiting, clock):
    v1 = of_build(store_on().store, "v1")
    v1.start(waiting, run_id="open")
    v1.start(waiting, run_id="ended")
    v1.force_cancel("ended")
    v2 = of_build(store_on().store, "v2")
    status = status_of(v2)
    assert status.missing_routes == ("v1",)
    assert codes(status) == [("critical", "route_missing")]
    assert status.problems[0].text.startswith("No workers for 1 run of build 'v1', and no other run is dispatched")
    assert "'routes': {'v1'" in status.problems[0].hint
    v2.services.options = Options(build={"on_missing_route": "skip"})
    assert status_of(v2).problems[0].text == "No workers for 1 run of build 'v1'"
    v1.force_cancel("open")
    assert codes(status_of(v2)) == []


def test_runs_without_a_build_need_a_route_too(store_on, clock):
    begin(store_on().store, wake_at=None)
    status = status_of(of_build(store_on().store, "v2"))
    assert status.missing_routes == (None,)
    assert "accept_unpinned" in status.problems[0].hint


def test_a_run_that_loses_its_workers_is_named(store_on, clock):
    engine = store_on()
    begin(engine.store)
    for _ in range(3):
        engine.store.claim("r1", lease=LEASE)
        clock.advance(LEASE)
    (problem,) = status_of(engine).problems
    assert (problem.level, problem.code) == ("warning", "losing_workers")
    assert problem.hint.endswith("flow_pause r1")


def test_a_run_that_no_worker_takes_is_named(store_on, clock):
    engine, _queue = queued(store_on().store)
    begin(engine.store)
    for hints in range(5):
        assert codes(status_of(engine)) == ([("warning", "not_taken")] if hints > 3 else [])
        FlowScheduler(engine).tick()
        clock.advance(engine.row("r1").wake_at - clock.now())
    (problem,) = status_of(engine).problems
    assert problem.text == "No worker takes 1 run, though messages were sent again and again: r1"
    engine.store.claim("r1", lease=LEASE)
    assert codes(status_of(engine)) == []


def test_steps_that_no_worker_takes_are_named_with_their_queue(store_on, clock):
    """Nobody reads the queue, or the step was renamed while its message was under way."""
    engine = store_on()
    row = begin(engine.store, wake_at=None)
    for name, queue, hints in (("a", "gpu", 4), ("b", "gpu", 9), ("c", None, 4), ("d", "gpu", 3)):
        StepExecution.objects.create(
            run_id=row.key, step_id=name, step_key=text_key(name), attempt=1, wake_at=clock.now() + HOUR,
            step_name="render" if queue else "mail", queue=queue, dispatches=hints,
        )  # fmt: skip
    texts = [problem.text for problem in status_of(engine).problems]
    again = ", though messages were sent again and again: r1"
    assert texts == [
        f"No worker takes 1 of step 'mail'{again}",
        f"No worker takes 2 of step 'render' to queue 'gpu'{again}",
    ]
    assert [item["queue"] for item in seen()["not_taken"]] == [None, "gpu"]
    assert "Start workers that read queue 'gpu'" in run("flow_status")[1]
    engine.pause("r1")
    assert codes(status_of(engine)) == []


def test_in_memory_there_is_nothing_to_show():
    engine, _queue = queued(InMemoryEventStore())
    with pytest.raises(ConfigurationError, match="in memory"):
        status_of(engine)


def test_a_database_that_does_not_answer_is_status_3(monkeypatch):
    from django.db import OperationalError

    from flow_app.store.overview import OverviewStore

    def away(*args, **kwargs):
        raise OperationalError("connection refused")

    monkeypatch.setattr(OverviewStore, "overview", away)
    assert run("flow_status") == (3, "The status is not known: connection refused")


@pytest.fixture
def store_on(clock):
    """Engines on the test's database, with a clock that moves when told to."""
    from flow_app.store import DjangoEventStore

    return lambda: inline(DjangoEventStore(clock=clock))


# --- pause, unpause, run now ----------------------------------------------------------------------------------------


def test_runs_are_paused_and_unpaused_by_command(waiting):
    engine = get_engine()
    for run_id in ("a", "b"):
        engine.start(waiting, run_id=run_id)
    assert run("flow_pause", "a", "b", "--actor", "ann") == (0, "a: paused\nb: paused\n")
    assert {engine.row(run_id).paused_by for run_id in ("a", "b")} == {"ann"}
    assert run("flow_pause", "a") == (0, "a: was paused already\n")
    assert Run.objects.paused().count() == 2
    engine.resume_hook("a", "h", 1)
    assert run("flow_unpause", "a") == (0, "a: goes on\n")
    assert engine.snapshot("a").status == "completed"
    assert run("flow_unpause", "b") == (0, "b: goes on\n")
    assert run("flow_unpause", "b") == (0, "b: was not paused\n")


def test_what_is_refused_is_said_and_the_others_are_done(waiting):
    engine = get_engine()
    engine.start(waiting, run_id="a")
    code, text = run("flow_pause", "missing", "a")
    assert code == 1
    assert text.startswith("a: paused\nmissing: Run 'missing' does not exist.")
    assert text.endswith("1 of 2 runs refused.")


def test_a_fixed_run_is_run_now(waiting):
    fixed = []

    @workflow("fixable")
    def fixable(ctx):
        if not fixed:
            raise ValueError("broken")
        return ctx.complete()

    engine = get_engine()
    with pytest.raises(Exception, match="broken"):
        engine.start(fixable, run_id="r1")
    code, text = run("flow_run_now", "r1")
    assert (code, "broken" in text) == (1, True)
    fixed.append(True)
    assert run("flow_run_now", "r1") == (0, "r1: dispatched\n")
    assert engine.snapshot("r1").status == "completed"
