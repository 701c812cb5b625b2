"""What workflow code and step code see."""

from __future__ import annotations

import logging
from decimal import Decimal

import pytest

from flow_app.core import commands as cmd
from flow_app.core import events as ev
from flow_app.core import tokens
from flow_app.core.context import StepContext, StepReference, WorkflowContext, hook_token
from flow_app.core.payload import NULL, Limits, Payload
from flow_app.core.policy import (
    CancellationRequest,
    ChildOperationReference,
    HookMetadata,
    RetryPolicy,
    WorkflowProgress,
)
from flow_app.errors import HookTokenKeyMissingError, InvalidTransitionError, PayloadError
from tests.unit.builders import (
    BEGUN,
    CANCELLING,
    CREATED,
    HANDLED,
    RUN,
    SPEC,
    TWICE,
    at,
    child,
    completed,
    failed,
    history,
    hook,
    progress,
    retrying,
    running,
    state_of,
    step,
    wait,
)


def context(*events: ev.Event, secrets: tuple[str, ...] = ("key",), limits: Limits = Limits()) -> WorkflowContext:  # noqa: B008
    return WorkflowContext(
        state_of(*BEGUN, *events), history=lambda: history(*BEGUN, *events), secrets=secrets, limits=limits
    )


# --- reading --------------------------------------------------------------------------------------------------------


def test_scenario_008_the_first_call_sees_spec_input_and_two_events():
    ctx = context()
    assert (ctx.run_id, ctx.spec, ctx.version, ctx.input) == (RUN, SPEC, "1", {"invoice": 7})
    assert [envelope.type for envelope in ctx.history] == ["run_created", "run_started"]
    assert ctx.history[0].data["input"] == {"invoice": 7}
    assert CREATED.input.value == {"invoice": 7}


def test_changing_what_was_read_changes_nothing():
    ctx = context(*completed("a", {"items": [1]}))
    ctx.input["invoice"] = 8
    ctx.step_output("a")["items"].append(2)
    assert ctx.input == {"invoice": 7}
    assert ctx.step_output("a") == {"items": [1]}


STEPS = {  # events: scheduled, completed, output, failed
    "unknown": ((), (False, False, None, None)),
    "pending": ((step("a"),), (True, False, None, None)),
    "running": (running("a"), (True, False, None, None)),
    "running again": (running("a", TWICE, 2), (True, False, None, None)),
    "retrying": (retrying("a"), (True, False, None, None)),
    "completed": (completed("a", [Decimal("1.10")]), (True, True, [Decimal("1.10")], None)),
    "completed with null": (completed("a"), (True, True, None, None)),
    "failed": (failed("a"), (True, False, None, "boom")),
    "failed and handled": (failed("a", HANDLED), (True, False, None, "boom")),
    "failed without a text": ((*running("a"), ev.StepFailed("a", 1, "")), (True, False, None, "")),
    "cancelled": ((step("a"), CANCELLING), (True, False, None, None)),
    "cancelled while running": ((*running("a"), CANCELLING), (True, False, None, None)),
    "late output": (
        (*running("a"), CANCELLING, ev.StepCompleted("a", Payload.of("paid"))),
        (True, True, "paid", None),
    ),
    "late failure": ((*running("a"), CANCELLING, ev.StepFailed("a", 1, "boom")), (True, False, None, "boom")),
}


@pytest.mark.parametrize(("events", "seen"), STEPS.values(), ids=STEPS)
def test_scenario_013_a_step_as_the_workflow_sees_it(events, seen):
    ctx = context(*events)
    assert (ctx.step_scheduled("a"), ctx.step_completed("a"), ctx.step_output("a"), ctx.step_failed("a")) == seen


WAITS = {  # events: scheduled, completed
    "unknown": ((), (False, False)),
    "waiting": ((wait("w"),), (True, False)),
    "completed": ((wait("w"), ev.WaitCompleted("w")), (True, True)),
    "cancelled": ((wait("w"), CANCELLING), (True, False)),
    "completed and then cancelled": ((wait("w"), ev.WaitCompleted("w"), CANCELLING), (True, True)),
}


@pytest.mark.parametrize(("events", "seen"), WAITS.values(), ids=WAITS)
def test_a_wait_as_the_workflow_sees_it(events, seen):
    ctx = context(*events)
    assert (ctx.wait_scheduled("w"), ctx.wait_completed("w")) == seen


HOOKS = {  # events: created, received, payload, disposed, expired
    "unknown": ((), (False, False, None, False, False)),
    "active": ((hook("h"),), (True, False, None, False, False)),
    "received": ((hook("h"), ev.HookReceived("h", Payload.of({"ok": 1}))), (True, True, {"ok": 1}, False, False)),
    "received null": ((hook("h"), ev.HookReceived("h", NULL)), (True, True, None, False, False)),
    "received false": ((hook("h"), ev.HookReceived("h", Payload.of(False))), (True, True, False, False, False)),
    "disposed": ((hook("h"), ev.HookDisposed("h")), (True, False, None, True, False)),
    "expired": ((hook("h", expires=1), ev.HookExpired("h")), (True, False, None, False, True)),
    "cancelled": ((hook("h", expires=1), CANCELLING), (True, False, None, False, False)),
}


@pytest.mark.parametrize(("events", "seen"), HOOKS.values(), ids=HOOKS)
def test_a_hook_as_the_workflow_sees_it(events, seen):
    ctx = context(*events)
    resolved = ctx.hook_received("h"), ctx.hook_payload("h"), ctx.hook_disposed("h"), ctx.hook_expired("h")
    assert (ctx.hook_created("h"), *resolved) == seen


def test_progress_and_children_are_read_by_their_ids():
    ctx = context(progress("p", 1, total=2, details={"x": Decimal(1)}), child("c", "job", flow_run_id="run-2"))
    assert ctx.progress("p") == WorkflowProgress("p", 1, 2, details={"x": Decimal(1)})
    assert ctx.child_operation("c") == ChildOperationReference("c", "export", "job", "run-2")
    assert ctx.progress("other") is None
    assert ctx.child_operation("other") is None


def test_a_cancellation_request_is_seen():
    assert context().cancellation_request is None
    assert context(CANCELLING).cancellation_request == CancellationRequest("changed my mind")


# --- tokens ---------------------------------------------------------------------------------------------------------


def derived(secret: str, hook_id: str = "h") -> str:
    return tokens.derive(secret, run_id=RUN, hook_id=hook_id)


def test_a_new_hook_gets_its_token_from_the_newest_key():
    assert context(secrets=("new", "old")).hook_token("h") == derived("new")


def test_the_token_of_a_hook_survives_the_rotation_of_keys():
    recorded = hook("h", derived("old"))
    ctx = context(recorded, secrets=("new", "old"))
    assert ctx.hook_token("h") == derived("old")
    assert ctx.create_hook("h").token == derived("old"), "so replay finds no drift"
    assert ctx.hook_token("other") == derived("new", "other")


@pytest.mark.parametrize("secrets", [(), ("new",)], ids=["no key", "another key"])
def test_a_hook_whose_key_is_gone_is_key_missing_and_never_drift(secrets):
    ctx = context(hook("h", derived("old")), secrets=secrets)
    with pytest.raises(HookTokenKeyMissingError) as caught:
        ctx.create_hook("h")
    assert (caught.value.run_id, caught.value.hook_id) == (RUN, "h")
    assert derived("old") not in str(caught.value)


def test_a_hook_with_a_token_of_the_workflow_has_no_derived_one():
    with pytest.raises(HookTokenKeyMissingError):
        context(hook("h", "chosen")).hook_token("h")
    assert context(hook("h", "chosen")).create_hook("h", "chosen") == cmd.CreateHook("h", "chosen")


def test_without_any_key_no_token_is_derived():
    with pytest.raises(HookTokenKeyMissingError):
        hook_token(state_of(*BEGUN), "h", secrets=())


def test_keys_may_be_bytes():
    assert hook_token(state_of(*BEGUN), "h", secrets=[b"key"]) == derived("key")


# --- commands -------------------------------------------------------------------------------------------------------


class Charge:
    step_name = "charge-card"
    retry = RetryPolicy(7, 70)


def test_every_command_is_built_from_plain_values():
    ctx = context()
    at_1, entry, reference = at(1), WorkflowProgress("p", 1), ChildOperationReference("c", "k", "o")
    assert ctx.complete({"a": (1,)}) == cmd.Complete(Payload.of({"a": [1]}))
    assert ctx.complete() == cmd.Complete(NULL)
    assert ctx.fail("boom") == cmd.Fail("boom")
    assert ctx.cancel() == cmd.Cancel()
    assert ctx.timeout(at_1, "slow") == cmd.Timeout(at_1, "slow")
    assert ctx.timeout(at_1) == cmd.Timeout(at_1, None)
    assert ctx.record_progress(entry) == cmd.RecordProgress(entry)
    assert ctx.link_child_operation(reference) == cmd.LinkChildOperation(reference)
    assert ctx.wait_until("w", at_1) == cmd.WaitUntil("w", at_1)
    assert ctx.create_hook("h", "t", {"x": 1}, expires_at=at_1) == cmd.CreateHook("h", "t", Payload.of({"x": 1}), at_1)
    assert ctx.create_hook("h") == cmd.CreateHook("h", derived("key"))


def test_hook_metadata_is_stored_in_its_own_form():
    metadata = HookMetadata.human_approval("invoice:7").with_label("team", "finance")
    command = context().create_hook("h", "t", metadata)
    assert command.metadata.value == {
        "kind": "human_approval",
        "subject": "invoice:7",
        "labels": {"team": "finance"},
    }


@pytest.mark.parametrize("retry", [None, TWICE])
def test_a_step_is_named_by_its_text_or_by_its_function(retry):
    ctx = context()
    by_name = cmd.ScheduleStep("a", "charge-card", Payload.of([1]), retry)
    by_function = cmd.ScheduleStep("a", "charge-card", Payload.of([1]), retry, RetryPolicy(7, 70))
    assert ctx.schedule_step("a", "charge-card", [1], retry=retry) == by_name
    assert isinstance(Charge, StepReference)
    assert ctx.schedule_step("a", Charge, [1], retry=retry) == by_function
    assert ctx.step("a", Charge, [1], retry=retry) == by_function
    assert ctx.schedule_steps(ctx.step(name, Charge) for name in "ab") == cmd.ScheduleSteps(
        (ctx.step("a", Charge), ctx.step("b", Charge))
    )


@pytest.mark.parametrize(
    ("build", "what"),
    [
        (lambda ctx: ctx.complete({1}), "output"),
        (lambda ctx: ctx.schedule_step("a", "charge", {1}), "input of step 'a'"),
        (lambda ctx: ctx.step("a", Charge, {1}), "input of step 'a'"),
        (lambda ctx: ctx.create_hook("h", "t", {1}), "metadata of hook 'h'"),
    ],
    ids=["output", "step", "member", "metadata"],
)
def test_a_value_that_cannot_be_stored_is_refused_where_it_is_given(build, what):
    with pytest.raises(PayloadError) as caught:
        build(context())
    assert caught.value.what == what


def test_limits_hold_where_a_value_is_given():
    with pytest.raises(PayloadError, match="takes 12 bytes, more than the 11"):
        context(limits=Limits(max_bytes=11)).complete("x" * 10)
    with pytest.raises(PayloadError, match="deeper than 1 level"):
        context(limits=Limits(max_depth=1)).complete([[]])


# --- steps ----------------------------------------------------------------------------------------------------------


def step_context(attempt: int = 1, *, cancelled: bool = False) -> StepContext:
    return StepContext(
        RUN, "charge:7", "charge", attempt, Payload.of({"n": [1]}), SPEC,
        logger=logging.LoggerAdapter(logging.getLogger("test"), {}),
        token_for=lambda hook_id: f"s3cret-{hook_id}",
        read_history=lambda: history(*BEGUN),
        is_cancelled=lambda: cancelled,
    )  # fmt: skip


def test_an_idempotency_key_is_the_same_for_every_attempt_of_a_step():
    assert step_context(1).idempotency_key == step_context(2).idempotency_key == "run-1/charge:7"


def test_a_step_sees_its_input_history_and_tokens():
    ctx = step_context(2)
    ctx.input["n"].append(2)
    assert ctx.input == {"n": [1]}
    assert [envelope.type for envelope in ctx.history] == ["run_created", "run_started"]
    assert ctx.hook_token("approval") == "s3cret-approval"
    assert ctx.labels == {"run_id": RUN, "step_id": "charge:7", "attempt": 2}
    assert (ctx.cancelled, step_context(cancelled=True).cancelled) == (False, True)


@pytest.mark.parametrize("build", [WorkflowContext.step, WorkflowContext.schedule_step])
@pytest.mark.parametrize(("given", "name"), [(len, "len"), (None, "None"), (state_of, r"state_of")])
def test_a_function_that_is_no_step_is_named(build, given, name):
    with pytest.raises(InvalidTransitionError, match=rf"step 's'.*{name}.*decorate it with @step"):
        build(context(), "s", given)
