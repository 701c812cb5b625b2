"""A delayed retry, begun before its time."""

from __future__ import annotations

from datetime import timedelta

import pytest

from flow_app import RetryPolicy, step, workflow
from flow_app.errors import InvalidTransitionError, RunTerminalError
from tests.engine.logbook import story

HOUR = timedelta(hours=1)


@pytest.fixture
def failing(engine):
    """A run whose step fails until told otherwise, and is tried again after an hour."""
    answers = {"fails": True}

    @step("shaky", retry=RetryPolicy.fixed(3, HOUR))
    def shaky():
        if answers["fails"]:
            raise ValueError("not yet")
        return "done"

    @workflow("tries")
    def tries(ctx):
        if ctx.cancellation_request:
            return ctx.cancel()
        return ctx.complete(ctx.step_output("s")) if ctx.step_completed("s") else ctx.schedule_step("s", shaky)

    engine.start("tries", run_id="r1")
    answers["fails"] = False
    return answers


def test_the_attempt_begins_now_and_says_who_wanted_it(engine, failing):
    assert engine.retry_now("r1", "s", actor="ada")
    assert engine.snapshot("r1").output == "done"
    started = [item for item in engine.history("r1") if item.type == "step_started"]
    assert [item.event.attempt for item in started] == [1, 2]
    assert started[1].meta == {"actor": "ada"}


def test_an_attempt_that_fails_again_keeps_to_its_policy(engine, failing, clock):
    failing["fails"] = True
    assert engine.retry_now("r1", "s")
    assert engine.row("r1").timer_at == clock.now() + HOUR
    assert engine.snapshot("r1").steps["s"].attempt == 2


def test_what_no_delay_holds_back_is_left_alone(engine, failing):
    assert engine.retry_now("r1", "s")
    before = story(engine)
    with pytest.raises(RunTerminalError):
        engine.retry_now("r1", "s")
    assert story(engine) == before


def test_an_unknown_step_is_refused(engine, failing):
    with pytest.raises(InvalidTransitionError):
        engine.retry_now("r1", "other")


def test_a_cancelled_step_is_not_tried_again(engine, failing):
    engine.services.dispatcher = None
    engine.request_cancellation("r1")
    assert not engine.retry_now("r1", "s")
    assert "step_started" not in [item.type for item in engine.history("r1")][4:]
