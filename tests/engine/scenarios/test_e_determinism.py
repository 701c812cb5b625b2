"""Scenarios 46 and 47: an id that is used again must say the same."""

from __future__ import annotations

from datetime import timedelta

import pytest

from flow_app import ChildOperationReference, RetryPolicy, WorkflowProgress, step, workflow
from flow_app.errors import HookTokenKeyMissingError, NonDeterministicError
from tests.engine.scenarios.support import engine_on, names, redefine

MINUTE = timedelta(minutes=1)


@pytest.fixture
def waiting_step(engine, clock):
    """A run whose step ``s`` waits for its second attempt, due now."""

    @step("s")
    def s(value):
        raise ValueError("once")

    @step("t")
    def t(value):
        return value

    @workflow("w")
    def w(ctx):
        return ctx.schedule_step("s", s, {"n": 1}, retry=RetryPolicy.fixed(3, MINUTE))

    engine.start(w, run_id="r")
    clock.advance(MINUTE)
    return s


def drifts(engine, code, match):
    """The run does not replay with this code, and nothing is written."""
    redefine("w", code)
    before = engine.history("r")
    with pytest.raises(NonDeterministicError, match=match) as caught:
        engine.drive("r")
    assert engine.history("r") == before
    assert engine.store.row("r").blocked_code == "non_deterministic"
    return str(caught.value)


def test_scenario_045_another_input(engine, waiting_step):
    text = drifts(
        engine,
        lambda ctx: ctx.schedule_step("s", "s", {"n": 2}, retry=RetryPolicy.fixed(3, MINUTE)),
        "input of step 's'",
    )
    assert 'history={"n":1}; replay={"n":2}' in text


@pytest.mark.parametrize("value", [{"n": 1.0}, {"n": True}, {"n": "1"}, {"n": 1, "m": None}])
def test_scenario_045_inputs_are_compared_strictly(engine, waiting_step, value):
    drifts(
        engine, lambda ctx: ctx.schedule_step("s", "s", value, retry=RetryPolicy.fixed(3, MINUTE)), "input of step 's'"
    )


def test_scenario_046_another_number_of_attempts(engine, waiting_step):
    text = drifts(
        engine,
        lambda ctx: ctx.schedule_step("s", "s", {"n": 1}, retry=RetryPolicy.fixed(4, MINUTE)),
        "retry policy of step 's'",
    )
    assert 'history={"delay_ms":60000,"max_attempts":3}; replay={"delay_ms":60000,"max_attempts":4}' in text


def test_scenario_046_another_name_is_reported_first(engine, waiting_step):
    text = drifts(
        engine,
        lambda ctx: ctx.schedule_step("s", "t", {"n": 2}, retry=RetryPolicy.none()),
        "name of step 's'",
    )
    assert 'history="s"; replay="t"' in text


@pytest.fixture
def waiting_hook(engine):
    @workflow("w")
    def w(ctx):
        return ctx.create_hook("h", "open-sesame", {"kind": "a"}, expires_at=None)

    engine.start(w, run_id="r")


def test_scenario_047_other_metadata(engine, waiting_hook):
    text = drifts(engine, lambda ctx: ctx.create_hook("h", "open-sesame", {"kind": "b"}), "metadata of hook 'h'")
    assert 'history={"kind":"a"}; replay={"kind":"b"}' in text


def test_scenario_047_another_token(engine, waiting_hook):
    text = drifts(engine, lambda ctx: ctx.create_hook("h", "open-simsim", {"kind": "b"}), "token of hook 'h'")
    assert "sesame" not in text
    assert "simsim" not in text
    row = engine.store.row("r")
    assert "s" + "esame" not in row.blocked_text
    assert "simsim" not in row.blocked_text


def test_scenario_047_another_deadline(engine, waiting_hook, clock):
    at = clock.now() + MINUTE
    text = drifts(
        engine, lambda ctx: ctx.create_hook("h", "open-sesame", {"kind": "a"}, expires_at=at), "deadline of hook 'h'"
    )
    assert 'history=null; replay="2030-01-01T00:01:00Z"' in text


def test_scenario_047_a_rotated_key_is_no_drift(engine, store):
    @workflow("w")
    def w(ctx):
        return ctx.complete() if ctx.hook_received("h") else ctx.create_hook("h")

    engine.start(w, run_id="r")
    digest = engine.snapshot("r").hooks["h"].token_digest
    rotated = engine_on(store)
    rotated.services.secrets = ("new", "secret")
    assert rotated.drive("r").hooks["h"].token_digest == digest

    lost = engine_on(store)
    lost.services.secrets = ("new",)
    with pytest.raises(HookTokenKeyMissingError):
        lost.drive("r")
    assert engine.store.row("r").blocked_code == "hook_token_key_missing"
    rotated.resume_hook("r", "h")
    assert engine.snapshot("r").status == "completed"


def test_other_progress_from_workflow_code(engine):
    @workflow("w")
    def w(ctx):
        done = 2 if ctx.progress("p") else 1
        return ctx.record_progress(WorkflowProgress("p", done))

    with pytest.raises(NonDeterministicError, match="progress 'p'"):
        engine.start(w, run_id="r")
    assert names(engine, "r") == "C S PG"


def test_another_child_from_workflow_code(engine):
    @workflow("w")
    def w(ctx):
        operation = "other" if ctx.child_operation("c") else "one"
        return ctx.link_child_operation(ChildOperationReference("c", "export", operation))

    with pytest.raises(NonDeterministicError, match="child operation 'c'"):
        engine.start(w, run_id="r")
    assert names(engine, "r") == "C S CH"


def test_ids_that_are_no_longer_named_are_not_noticed(engine, waiting_step):
    """Only a reused id is compared: code that goes another way is taken at its word."""
    redefine("w", lambda ctx: ctx.complete("another way"))
    assert engine.drive("r").output == "another way"


# --- blocked runs ----------------------------------------------------------------------------------------------------


def test_a_blocked_run_says_why_and_is_tried_ever_more_seldom(engine, waiting_hook, clock):
    def broken(ctx):
        raise ValueError("no such vendor\x00")

    redefine("w", broken)
    since = clock.now()
    delays = []
    for count in range(1, 10):
        with pytest.raises(Exception, match="no such vendor"):
            engine.drive("r")
        row = engine.store.row("r")
        assert (row.blocked_code, row.blocked_since, row.blocked_count) == ("runtime", since, count)
        assert "no such vendor" in row.blocked_text
        assert row.lease_expires_at is None
        assert row.wake_reason == "blocked"
        delays.append((row.wake_at - clock.now()).total_seconds())
        clock.move_to(row.wake_at)
    assert delays == [5, 10, 20, 40, 80, 160, 300, 300, 300]
    assert names(engine, "r") == "C S hc"
    assert engine.snapshot("r").status == "suspended"


def test_a_blocked_run_is_freed_by_fixed_code(engine, waiting_hook, clock):
    redefine("w", lambda ctx: None)
    with pytest.raises(Exception, match="not a command"):
        engine.drive("r")
    redefine("w", lambda ctx: ctx.create_hook("h", "open-sesame", {"kind": "a"}))
    engine.drive("r")
    row = engine.store.row("r")
    assert (row.blocked_code, row.blocked_text, row.blocked_since, row.blocked_count) == ("", "", None, 0)
    assert (row.wake_at, row.wake_reason) == (None, "hook")


def test_a_blocked_run_is_tried_at_once_on_a_host_event(engine, waiting_hook, clock):
    def broken(ctx):
        if not ctx.hook_received("h"):
            raise ValueError("only the answer helps")
        return ctx.complete(ctx.hook_payload("h"))

    redefine("w", broken)
    with pytest.raises(Exception, match="only the answer helps"):
        engine.drive("r")
    engine.resume_hook("r", "h", "yes")
    assert engine.snapshot("r").output == "yes"
    row = engine.store.row("r")
    assert (row.blocked_code, row.blocked_count, row.wake_at) == ("", 0, None)


def test_a_host_event_makes_a_blocked_run_due_where_nobody_drives_inside_the_call(engine, waiting_hook, clock):
    def broken(ctx):
        raise ValueError("no")

    redefine("w", broken)
    with pytest.raises(Exception, match="no"):
        engine.drive("r")
    assert engine.store.row("r").wake_at > clock.now()
    engine.services.dispatcher = None
    engine.resume_hook("r", "h", "yes")
    assert engine.store.row("r").wake_at == clock.now()


def test_a_blocked_run_of_another_reason_starts_to_count_anew(engine, waiting_hook, clock):
    redefine("w", lambda ctx: None)
    for _ in range(3):
        with pytest.raises(Exception, match="not a command"):
            engine.drive("r")
    clock.advance(MINUTE)
    redefine("w", lambda ctx: ctx.create_hook("h", "another", {"kind": "a"}))
    with pytest.raises(NonDeterministicError):
        engine.drive("r")
    row = engine.store.row("r")
    assert (row.blocked_code, row.blocked_count, row.blocked_since) == ("non_deterministic", 1, clock.now())


def test_a_blocked_run_can_be_cancelled_and_ended(engine, waiting_hook):
    redefine("w", lambda ctx: None)
    with pytest.raises(Exception, match="not a command"):
        engine.drive("r")
    assert engine.force_cancel("r", "hopeless") is True
    row = engine.store.row("r")
    assert (row.blocked_code, row.wake_at, row.status) == ("", None, "cancelled")


def test_an_event_that_comes_while_a_run_is_found_to_be_blocked_tries_again_at_once(engine, waiting_hook, clock):
    """The answer arrives after the drive has read the log, and the workflow fails on what it saw before."""

    def broken(ctx):
        engine.resume_hook("r", "h", "yes")
        raise ValueError("did not know")

    engine.services.dispatcher = None
    redefine("w", broken)
    with pytest.raises(Exception, match="did not know"):
        engine.drive("r")
    assert names(engine, "r") == "C S hc hr"
    assert engine.store.row("r").wake_at <= clock.now()


def test_the_answer_is_not_lost_when_the_workflow_answers_itself(engine, waiting_hook):
    """What came while the workflow was asked is seen when it is asked again, in the same drive."""

    def impatient(ctx):
        if ctx.hook_received("h"):
            return ctx.complete("answered")
        engine.resume_hook("r", "h", "yes")
        return ctx.create_hook("h", "open-sesame", {"kind": "a"})

    redefine("w", impatient)
    assert engine.drive("r").output == "answered"
    assert names(engine, "r") == "C S hc hr RC"
