"""Scenarios 49 to 64: hooks, answered and withdrawn."""

from __future__ import annotations

import hashlib
import threading
from datetime import timedelta

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from flow_app import HookCallbackRoute, HookMetadata, RuntimeBuildCompatibility, step, workflow
from flow_app.errors import (
    HookConflictError,
    HookTokenConflictError,
    HookTokenNotFoundError,
    InvalidTransitionError,
    PayloadError,
    RunNotFoundError,
    RunTerminalError,
    RuntimeBuildUnavailableError,
)
from tests.engine.scenarios.support import PATIENCE, Crowd, engine_on, names, redefine, restarted

HOUR = timedelta(hours=1)

on_a_database = pytest.mark.parametrize(
    "store", [pytest.param("django", marks=pytest.mark.django_db(transaction=True))], indirect=True
)


@pytest.fixture
def approval():
    """A run that waits for one answer; its input may name a token and a deadline."""

    @workflow("approval")
    def approval(ctx):
        told = ctx.input or {}
        if ctx.hook_received("h"):
            return ctx.complete(["received", ctx.hook_payload("h")])
        if ctx.hook_disposed("h"):
            return ctx.complete(["disposed"])
        if ctx.hook_expired("h"):
            return ctx.complete(["expired"])
        return ctx.create_hook("h", told.get("token"), told.get("metadata"), expires_at=told.get("expires_at"))

    return approval


# --- by id -----------------------------------------------------------------------------------------------------------


def test_scenario_049_the_same_answer_twice(engine, approval):
    engine.start(approval, run_id="r")
    assert names(engine, "r") == "C S hc"
    assert engine.resume_hook("r", "h", {"ok": True}, actor="ann") is True
    before = engine.history("r")

    assert engine.resume_hook("r", "h", {"ok": True}) is False
    assert engine.history("r") == before
    assert names(engine, "r") == "C S hc hr RC"
    assert engine.history("r")[3].meta == {"actor": "ann"}
    assert engine.snapshot("r").output == ["received", {"ok": True}]


def test_scenario_049_the_same_answer_twice_on_a_live_run(engine):
    @workflow("w")
    def w(ctx):
        return ctx.create_hook("second") if ctx.hook_received("first") else ctx.create_hook("first")

    engine.start(w, run_id="r")
    assert engine.resume_hook("r", "first", None) is True
    assert engine.resume_hook("r", "first", None) is False
    assert names(engine, "r") == "C S hc hr hc"


def test_scenario_049_a_redelivery_finishes_a_drive_that_failed(engine, approval):
    engine.start(approval, run_id="r")
    code = approval.function

    def broken(ctx):
        raise ValueError("not now")

    redefine("approval", broken)
    with pytest.raises(Exception, match="not now"):
        engine.resume_hook("r", "h", 1)
    assert names(engine, "r") == "C S hc hr"
    redefine("approval", code)
    assert engine.resume_hook("r", "h", 1) is False
    assert names(engine, "r") == "C S hc hr RC"


@pytest.mark.parametrize("other", [2, 1.0, True, None, {"n": 1}])
def test_scenario_050_another_answer(engine, approval, other):
    engine.start(approval, run_id="r")
    engine.resume_hook("r", "h", 1)
    before = engine.history("r")
    with pytest.raises(HookConflictError, match="different payload") as caught:
        engine.resume_hook("r", "h", other)
    assert (caught.value.run_id, caught.value.hook_id) == ("r", "h")
    assert engine.history("r") == before


def race(store, *acts):
    """Act at the same time, each through an engine of its own; results and errors."""
    barrier = threading.Barrier(len(acts), timeout=PATIENCE)

    def run(act):
        engine = engine_on(store)
        barrier.wait()
        return act(engine)

    return Crowd(*(lambda act=act: run(act) for act in acts)).join()


@on_a_database
def test_scenario_052_two_identical_answers_at_once(store, approval):
    engine = engine_on(store)
    engine.start(approval, run_id="r")
    found = race(store, *[lambda engine: engine.resume_hook("r", "h", "yes")] * 2)
    assert sorted(found) == [False, True]
    assert names(engine, "r") == "C S hc hr RC"


@on_a_database
def test_scenario_052_two_different_answers_at_once(store, approval):
    engine = engine_on(store)
    engine.start(approval, run_id="r")
    found = race(
        store, lambda engine: engine.resume_hook("r", "h", "yes"), lambda engine: engine.resume_hook("r", "h", "no")
    )
    assert [item for item in found if item is True] == [True]
    [refused] = [item for item in found if item is not True]
    assert isinstance(refused, HookConflictError)
    assert names(engine, "r") == "C S hc hr RC"


@on_a_database
def test_scenario_052_an_answer_and_a_withdrawal_at_once(store, approval):
    engine = engine_on(store)
    engine.start(approval, run_id="r")
    found = race(
        store, lambda engine: engine.resume_hook("r", "h", "yes"), lambda engine: engine.dispose_hook("r", "h")
    )
    assert sorted(str(type(item).__name__) for item in found) == ["HookConflictError", "bool"]
    assert names(engine, "r") in ("C S hc hr RC", "C S hc hd RC")


def test_scenario_053_withdrawn_twice(engine, approval):
    engine.start(approval, run_id="r")
    assert engine.dispose_hook("r", "h", actor="ann") is True
    assert engine.dispose_hook("r", "h") is False
    assert names(engine, "r") == "C S hc hd RC"
    run = engine.snapshot("r")
    assert run.hooks["h"].status == "disposed"
    assert run.output == ["disposed"]


def test_scenario_054_an_answer_to_a_withdrawn_hook_and_back(engine, approval):
    engine.start(approval, run_id="withdrawn")
    engine.dispose_hook("withdrawn", "h")
    with pytest.raises(HookConflictError, match="already disposed"):
        engine.resume_hook("withdrawn", "h", 1)
    engine.start(approval, run_id="answered")
    engine.resume_hook("answered", "h", 1)
    with pytest.raises(HookConflictError, match="already resumed"):
        engine.dispose_hook("answered", "h")


@pytest.mark.parametrize("verb", ["resume_hook", "dispose_hook"])
def test_scenario_054_hooks_that_are_not_there(engine, approval, verb):
    engine.start(approval, run_id="r")
    with pytest.raises(InvalidTransitionError, match="never created"):
        getattr(engine, verb)("r", "nobody")
    with pytest.raises(RunNotFoundError):
        getattr(engine, verb)("nobody", "h")
    engine.force_cancel("r")
    for hook_id in ("nobody", "h"):
        with pytest.raises(RunTerminalError):
            getattr(engine, verb)("r", hook_id)
    assert names(engine, "r") == "C S hc RX"


@pytest.mark.parametrize("verb", ["resume_hook", "dispose_hook"])
def test_scenario_054_a_hook_closed_by_a_cancellation_request(engine, verb):
    @workflow("w")
    def w(ctx):
        if not ctx.cancellation_request:
            return ctx.create_hook("h")
        cleaned = ctx.hook_received("cleanup") or ctx.hook_disposed("cleanup")
        return ctx.cancel() if cleaned else ctx.create_hook("cleanup")

    engine.start(w, run_id="r")
    engine.request_cancellation("r")
    with pytest.raises(HookConflictError, match="cancelled"):
        getattr(engine, verb)("r", "h")
    assert names(engine, "r") == "C S hc CR hc"
    assert getattr(engine, verb)("r", "cleanup") is True
    assert engine.snapshot("r").status == "cancelled"


@pytest.mark.parametrize(("first", "status"), [("resume_hook", "hr"), ("dispose_hook", "hd")])
def test_scenario_055_repeated_by_an_engine_of_another_build(engine, approval, first, status):
    own = restarted(engine, builds=RuntimeBuildCompatibility("b1"))
    own.start(approval, run_id="r")
    other = restarted(engine, builds=RuntimeBuildCompatibility("b2"))
    with pytest.raises(RuntimeBuildUnavailableError):
        getattr(other, first)("r", "h")
    assert names(engine, "r") == "C S hc"

    getattr(own, first)("r", "h")
    assert getattr(other, first)("r", "h") is False
    assert names(engine, "r") == f"C S hc {status} RC"


def test_a_payload_that_cannot_be_stored(engine, approval):
    engine.start(approval, {"token": "t"}, run_id="r")
    for act in (
        lambda: engine.resume_hook("r", "h", {1, 2}),
        lambda: engine.resume_hook_by_token("t", float("nan")),
        lambda: engine.resume_hook("r", "h", "x" * engine.services.options.max_payload),
    ):
        with pytest.raises(PayloadError):
            act()
    assert names(engine, "r") == "C S hc"


# --- by token --------------------------------------------------------------------------------------------------------


def test_scenario_056_by_token(engine, approval):
    engine.start(approval, {"token": "open-sesame"}, run_id="r")
    assert engine.resume_hook_by_token("open-sesame", "yes") == ("r", "h")
    assert engine.snapshot("r").output == ["received", "yes"]
    with pytest.raises(HookTokenNotFoundError) as caught:
        engine.resume_hook_by_token("open-sesame", "yes")
    assert caught.value.token == "open-sesame"
    assert "sesame" not in str(caught.value) + repr(caught.value)


def test_scenario_056_withdrawn_by_token(engine, approval):
    engine.start(approval, {"token": "open-sesame"}, run_id="r")
    assert engine.dispose_hook_by_token("open-sesame") == ("r", "h")
    assert engine.snapshot("r").output == ["disposed"]
    with pytest.raises(HookTokenNotFoundError):
        engine.dispose_hook_by_token("open-sesame")


def test_scenario_056_the_derived_token(engine, approval):
    """Without a token of its own a hook has one that a step can mail; it stands nowhere in the log."""
    mailed = []

    @step("mail")
    def mail(ctx):
        mailed.append(ctx.hook_token("h"))

    @workflow("w")
    def w(ctx):
        if not ctx.hook_created("h"):
            return ctx.create_hook("h") if ctx.step_completed("mail") else ctx.schedule_step("mail", mail)
        return ctx.complete(ctx.hook_payload("h")) if ctx.hook_received("h") else ctx.create_hook("h")

    engine.start(w, run_id="r")
    engine.start(w, run_id="s")
    assert len(set(mailed)) == 2
    assert engine.resume_hook_by_token(mailed[1], "yes") == ("s", "h")
    assert mailed[0] not in str([envelope.to_wire() for envelope in engine.history("r")])
    assert "sha256:" + hashlib.sha256(mailed[0].encode()).hexdigest() == engine.snapshot("r").hooks["h"].token_digest


@pytest.mark.parametrize("token", ["", " ", None, 5])
def test_scenario_057_what_is_no_token(engine, token):
    with pytest.raises(InvalidTransitionError, match="token"):
        engine.resume_hook_by_token(token)


def test_scenario_058_a_token_that_is_taken(engine, approval):
    engine.start(approval, {"token": "open-sesame"}, run_id="first")
    with pytest.raises(HookTokenConflictError) as caught:
        engine.start(approval, {"token": "open-sesame"}, run_id="second")
    assert (caught.value.owner_run_id, caught.value.owner_hook_id) == ("first", "h")
    assert "sesame" not in str(caught.value) + repr(caught.value)
    assert names(engine, "second") == "C S"
    assert engine.store.row("second").blocked_code == "hook_token_conflict"

    engine.resume_hook("first", "h")
    engine.start(approval, {"token": "open-sesame"}, run_id="second")
    assert names(engine, "second") == "C S hc"
    assert engine.resume_hook_by_token("open-sesame") == ("second", "h")


@pytest.mark.parametrize("ending", ["force_cancel", "request_cancellation", "dispose_hook"])
def test_scenario_058_a_token_is_free_once_its_hook_is_closed(engine, approval, ending):
    engine.start(approval, {"token": "t"}, run_id="first")
    code = approval.function
    redefine("approval", lambda ctx: ctx.cancel() if ctx.cancellation_request else code(ctx))
    getattr(engine, ending)("first", *(["h"] if ending == "dispose_hook" else []))
    engine.start(approval, {"token": "t"}, run_id="second")
    assert [(hook.run_id, hook.hook_id) for hook in engine.list_active_hooks()] == [("second", "h")]


def test_scenario_058_a_token_taken_by_a_hook_of_the_same_run(engine):
    @workflow("w")
    def w(ctx):
        return ctx.create_hook("b", "t") if ctx.hook_created("a") else ctx.create_hook("a", "t")

    with pytest.raises(HookTokenConflictError):
        engine.start(w, run_id="r")
    assert names(engine, "r") == "C S hc"


def test_scenario_058_the_outcome_before_a_refused_hook_is_kept(engine, approval):
    """The step's outcome and the hook travel together; refused, the outcome is committed alone."""
    engine.start(approval, {"token": "t"}, run_id="first")
    calls = []

    @step("s")
    def s():
        calls.append(1)

    @workflow("w")
    def w(ctx):
        return ctx.create_hook("h", "t") if ctx.step_completed("s") else ctx.schedule_step("s", s)

    with pytest.raises(HookTokenConflictError):
        engine.start(w, run_id="r")
    assert names(engine, "r") == "C S sc ss sk"
    engine.dispose_hook("first", "h")
    engine.drive("r")
    assert names(engine, "r") == "C S sc ss sk hc"
    assert calls == [1]


@on_a_database
def test_scenario_059_two_engines_create_one_token_at_once(store, approval):
    def start(run_id):
        return lambda engine: engine.start(approval, {"token": "t"}, run_id=run_id)

    found = race(store, start("a"), start("b"))
    [winner] = [item for item in found if isinstance(item, str)]
    [refused] = [item for item in found if not isinstance(item, str)]
    assert isinstance(refused, HookTokenConflictError)
    assert refused.owner_run_id == winner
    engine = engine_on(store)
    assert [hook.run_id for hook in engine.list_active_hooks()] == [winner]
    loser = "b" if winner == "a" else "a"
    assert names(engine, winner) == "C S hc"
    assert names(engine, loser) == "C S"


def test_scenario_061_the_active_hooks(engine, approval):
    for run_id in ("c", "a", "b"):
        engine.start(approval, {"token": run_id, "metadata": {"of": run_id}}, run_id=run_id)
    engine.force_cancel("b")

    hooks = engine.list_active_hooks()
    assert [(hook.run_id, hook.hook_id) for hook in hooks] == [("a", "h"), ("c", "h")]
    assert [hook.metadata.value for hook in hooks] == [{"of": "a"}, {"of": "c"}]
    assert hooks[0].token_digest == "sha256:" + hashlib.sha256(b"a").hexdigest()
    assert engine.snapshot("b").hooks["h"].status == "cancelled"

    engine.dispose_hook("a", "h")
    engine.resume_hook("c", "h")
    assert engine.list_active_hooks() == []


def test_scenario_062_the_metadata_of_an_approval(engine):
    metadata = (
        HookMetadata.human_approval("invoice:inv-8821")
        .with_callback_route(HookCallbackRoute.post("/hooks/{token}"))
        .with_label("team", "finance")
        .with_data("amount", 12.5)
    )

    @workflow("w")
    def w(ctx):
        if not ctx.hook_created("plain"):
            return ctx.create_hook("plain", metadata=HookMetadata("note"))
        return ctx.create_hook("full", metadata=metadata)

    engine.start(w, run_id="r")
    hooks = engine.snapshot("r").hooks
    assert hooks["full"].metadata == {
        "kind": "human_approval",
        "subject": "invoice:inv-8821",
        "callback": {"method": "POST", "path": "/hooks/{token}"},
        "labels": {"team": "finance"},
        "data": {"amount": 12.5},
    }
    assert hooks["plain"].metadata == {"kind": "note"}


@on_a_database
def test_scenario_064_no_history_is_read_for_hooks(engine, approval):
    for run_id in ("a", "b", "c"):
        engine.start(approval, {"token": run_id}, run_id=run_id)
    engine.services.dispatcher = None  # what driving reads is another matter
    with CaptureQueriesContext(connection) as captured:
        engine.list_active_hooks()
        engine.resume_hook_by_token("a", 1)
        engine.dispose_hook_by_token("b")
        engine.resume_hook("c", "h", 1)
    read = [query["sql"] for query in captured if query["sql"].lstrip().upper().startswith("SELECT")]
    assert read
    assert not [sql for sql in read if "flow_app_event" in sql]


# --- deadlines -------------------------------------------------------------------------------------------------------


@pytest.fixture
def expiring(engine, approval, clock):
    at = clock.now() + HOUR
    engine.start(approval, {"token": "t", "expires_at": at}, run_id="r")
    return at


def test_a_hook_expires_once(engine, expiring, clock):
    row = engine.store.row("r")
    assert (row.wake_at, row.wake_reason) == (expiring, "hook")
    assert engine.history("r")[2].data["expires_at"] == expiring
    clock.advance(HOUR)
    engine.resume_scheduled_run("r")
    assert names(engine, "r") == "C S hc he RC"
    run = engine.snapshot("r")
    assert run.output == ["expired"]
    assert run.hooks["h"].status == "expired"
    assert engine.list_active_hooks() == []
    engine.resume_scheduled_run("r")
    with pytest.raises(HookConflictError, match="deadline"):
        engine.resume_hook("r", "h", 1)
    with pytest.raises(HookTokenNotFoundError):
        engine.resume_hook_by_token("t", 1)
    assert names(engine, "r") == "C S hc he RC"


def test_drive_alone_notices_a_passed_deadline(engine, expiring, clock):
    clock.advance(HOUR)
    assert engine.drive("r").output == ["expired"]


@pytest.mark.parametrize("verb", ["resume_hook", "dispose_hook"])
def test_a_late_answer_by_id_expires_the_hook_and_is_refused(engine, expiring, clock, verb):
    clock.advance(HOUR)
    with pytest.raises(HookConflictError, match="deadline") as caught:
        getattr(engine, verb)("r", "h")
    assert type(caught.value) is HookConflictError
    assert names(engine, "r") == "C S hc he RC"
    assert engine.snapshot("r").output == ["expired"]
    with pytest.raises(HookConflictError):
        getattr(engine, verb)("r", "h")
    assert names(engine, "r") == "C S hc he RC"


@pytest.mark.parametrize("verb", ["resume_hook_by_token", "dispose_hook_by_token"])
def test_a_late_answer_by_token_expires_the_hook_and_is_refused(engine, expiring, clock, verb):
    clock.advance(HOUR)
    for _ in range(2):
        with pytest.raises(HookTokenNotFoundError):
            getattr(engine, verb)("t")
    assert names(engine, "r") == "C S hc he RC"


def test_a_late_answer_is_refused_though_the_drive_fails(engine, expiring, clock):
    """The caller hears that the answer was refused; what stops the run stands on its row."""

    def broken(ctx):
        raise ValueError("no")

    redefine("approval", broken)
    clock.advance(HOUR)
    with pytest.raises(HookConflictError):
        engine.resume_hook("r", "h", 1)
    assert names(engine, "r") == "C S hc he"
    assert engine.store.row("r").blocked_code == "runtime"


def test_an_answer_just_before_the_deadline_wins(engine, expiring, clock):
    clock.advance(HOUR - timedelta(microseconds=1))
    assert engine.resume_hook("r", "h", "yes") is True
    clock.advance(HOUR)
    engine.resume_scheduled_run("r")
    assert names(engine, "r") == "C S hc hr RC"
    assert engine.resume_hook("r", "h", "yes") is False


def test_the_log_decides_and_a_late_look_does_not_undo_an_answer(engine, expiring, clock):
    """The answer was in time; that nobody drove the run until after the deadline changes nothing."""
    dispatcher, engine.services.dispatcher = engine.services.dispatcher, None
    engine.resume_hook("r", "h", "yes")
    clock.advance(2 * HOUR)
    engine.services.dispatcher = dispatcher
    engine.resume_scheduled_run("r")
    assert names(engine, "r") == "C S hc hr RC"


def test_a_deadline_already_past_when_created(engine, approval, clock):
    engine.start(approval, {"expires_at": clock.now() - HOUR}, run_id="r")
    assert names(engine, "r") == "C S hc"
    assert engine.store.row("r").wake_at <= clock.now()
    engine.drive("r")
    assert names(engine, "r") == "C S hc he RC"


def test_a_token_is_free_once_its_hook_has_expired(engine, approval, expiring, clock):
    clock.advance(HOUR)
    engine.resume_scheduled_run("r")
    engine.start(approval, {"token": "t"}, run_id="second")
    assert names(engine, "second") == "C S hc"


@pytest.mark.parametrize("at", ["tomorrow", 5])
def test_a_deadline_that_is_no_instant(engine, approval, at):
    with pytest.raises(InvalidTransitionError, match="expires_at of hook 'h'"):
        engine.start(approval, {"expires_at": at}, run_id="r")
    assert names(engine, "r") == "C S"


def test_a_hook_with_a_deadline_beside_a_later_timer(engine, clock):
    now = clock.now()

    @workflow("w")
    def w(ctx):
        if not ctx.wait_scheduled("w"):
            return ctx.wait_until("w", now + 2 * HOUR)
        if not ctx.hook_created("h"):
            return ctx.create_hook("h", expires_at=now + HOUR)
        if ctx.wait_completed("w"):
            return ctx.complete(ctx.hook_expired("h"))
        return ctx.wait_until("w", now + 2 * HOUR)

    engine.start(w, run_id="r")
    assert engine.store.row("r").wake_at == now + HOUR
    clock.advance(HOUR)
    engine.resume_scheduled_run("r")
    assert names(engine, "r") == "C S wc hc he"
    assert engine.store.row("r").wake_at == now + 2 * HOUR
    clock.advance(HOUR)
    engine.resume_scheduled_run("r")
    assert engine.snapshot("r").output is True


def test_an_expired_hook_again_makes_no_progress(engine, clock):
    at = clock.now() + HOUR

    @workflow("w")
    def w(ctx):
        return ctx.create_hook("h", expires_at=at)

    engine.start(w, run_id="r")
    clock.advance(HOUR)
    with pytest.raises(InvalidTransitionError, match="already expired"):
        engine.resume_scheduled_run("r")
    assert names(engine, "r") == "C S hc he"


def test_a_received_hook_again_makes_no_progress(engine):
    @workflow("w")
    def w(ctx):
        return ctx.create_hook("h", "t")

    engine.start(w, run_id="r")
    with pytest.raises(InvalidTransitionError, match="already received"):
        engine.resume_hook("r", "h")
    assert names(engine, "r") == "C S hc hr"
