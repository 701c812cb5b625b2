"""Scenario 128 and what a worker reports. (127, tasks as JSON, is tested with the core; 121 to 125 are Celery's.)"""

from __future__ import annotations

from datetime import timedelta

import pytest

from flow_app import workflow
from flow_app.core.snapshot import RunStatus
from flow_app.core.tasks import (
    DisposeHook,
    DisposeHookByToken,
    DriveRun,
    FlowTask,
    ResumeDueRetries,
    ResumeDueWaits,
    ResumeHook,
    ResumeHookByToken,
    ResumeScheduledRun,
    ResumeWait,
)
from flow_app.dispatch import handle_task
from flow_app.errors import HookTokenNotFoundError, RunNotFoundError
from tests.engine.logbook import story

HOUR = timedelta(hours=1)


@pytest.fixture
def run(engine, clock):
    """A run that waits for a timer, then for a hook."""

    @workflow("run")
    def run(ctx):
        if not ctx.wait_completed("w"):
            return ctx.wait_until("w", ctx.input)
        if ctx.hook_disposed("h"):
            return ctx.fail("withdrawn")
        if not ctx.hook_received("h"):
            return ctx.create_hook("h", "tok")
        return ctx.complete(ctx.hook_payload("h"))

    return engine.start(run, clock.now() + HOUR, run_id="r1")


def reported(outcome):
    """What an outcome reports besides the task and its runs."""
    names = ("resumed_waits", "resumed_retries", "resumed_hook", "disposed_hook")
    return {name: value for name in names if (value := getattr(outcome, name))}


STALE = [DriveRun("r1"), ResumeWait("r1", "w"), ResumeScheduledRun("r1")]


@pytest.mark.parametrize("task", STALE, ids=lambda task: task.type)
def test_scenario_128_a_stale_task_of_an_ended_run_is_done_and_reports_nothing(engine, run, task):
    engine.force_cancel("r1")
    outcome = handle_task(engine, task)
    assert outcome.run_ids == ("r1",)
    assert reported(outcome) == {}
    assert story(engine) == "C S wc:w RX"


@pytest.mark.parametrize("scan", [ResumeDueWaits, ResumeDueRetries])
def test_scenario_128_a_scan_finds_nothing_of_an_ended_run(engine, run, clock, scan):
    engine.force_cancel("r1")
    outcome = handle_task(engine, scan(clock.now() + 2 * HOUR))
    assert (outcome.run_ids, reported(outcome)) == ((), {})


def test_a_worker_reports_what_its_task_committed_and_a_redelivery_reports_nothing(engine, run):
    def handle(task: FlowTask):
        return reported(handle_task(engine, task))

    assert handle(ResumeWait("r1", "w")) == {"resumed_waits": (("r1", "w"),)}
    assert handle(ResumeWait("r1", "w")) == {}
    assert handle(ResumeHook("r1", "h", {"ok": True})) == {"resumed_hook": ("r1", "h")}
    assert handle(ResumeHook("r1", "h", {"ok": True})) == {}
    assert story(engine) == "C S wc:w wk:w hc:h hr:h RC"


def test_by_token_a_redelivery_is_an_error_for_the_token_is_spent(engine, run):
    engine.resume_wait("r1", "w")
    outcome = handle_task(engine, ResumeHookByToken("tok", 1))
    assert (outcome.run_ids, reported(outcome)) == (("r1",), {"resumed_hook": ("r1", "h")})
    with pytest.raises(HookTokenNotFoundError):
        handle_task(engine, ResumeHookByToken("tok", 1))


@pytest.mark.parametrize("task", [DisposeHook("r1", "h"), DisposeHookByToken("tok")], ids=lambda task: task.type)
def test_a_disposed_hook_is_reported_once(engine, run, task):
    engine.resume_wait("r1", "w")
    assert reported(handle_task(engine, task)) == {"disposed_hook": ("r1", "h")}
    assert reported(handle_task(engine, DisposeHook("r1", "h"))) == {}
    assert engine.snapshot("r1").status is RunStatus.FAILED


def test_a_due_scan_reports_its_pairs(engine, run, clock):
    outcome = handle_task(engine, ResumeDueWaits(clock.now() + HOUR))
    assert (outcome.run_ids, reported(outcome)) == (("r1",), {"resumed_waits": (("r1", "w"),)})


@pytest.mark.parametrize("task", [DriveRun("r9"), ResumeWait("r9", "w"), ResumeHook("r9", "h")], ids=lambda t: t.type)
def test_a_task_of_an_unknown_run_is_an_error(engine, task):
    with pytest.raises(RunNotFoundError):
        handle_task(engine, task)
