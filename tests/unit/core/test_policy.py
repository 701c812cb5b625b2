from __future__ import annotations

from datetime import timedelta
from decimal import Decimal

import pytest

from flow_app.core.instants import MAX_DELAY_MS
from flow_app.core.payload import Limits, Payload
from flow_app.core.policy import (
    DEFAULT_RETRY,
    ChildOperationReference,
    HookCallbackRoute,
    HookMetadata,
    OnExhausted,
    RetryPolicy,
    WorkflowProgress,
    check_reason,
)
from flow_app.errors import InvalidTransitionError, PayloadError

# --- retry ----------------------------------------------------------------------------------------------------------


def test_the_default_is_three_attempts_at_once():
    assert RetryPolicy(max_attempts=3, delay_ms=0, on_exhausted=OnExhausted.FAIL_RUN) == DEFAULT_RETRY


def test_none_is_one_attempt():
    assert RetryPolicy.none() == RetryPolicy(1, 0)


@pytest.mark.parametrize(
    ("attempts", "delay", "policy"),
    [
        (3, timedelta(), RetryPolicy(3, 0)),
        (2, timedelta(seconds=120), RetryPolicy(2, 120_000)),
        (0, timedelta(), RetryPolicy(1, 0)),
        (-5, timedelta(), RetryPolicy(1, 0)),
        (2, timedelta(microseconds=1), RetryPolicy(2, 1)),
        (2, timedelta(milliseconds=7, microseconds=1), RetryPolicy(2, 8)),
        (2, timedelta(days=999_999_999, microseconds=1), RetryPolicy(2, 999_999_999 * 86_400_000 + 1)),
    ],
)
def test_a_fixed_delay_is_rounded_up_to_milliseconds(attempts, delay, policy):
    assert RetryPolicy.fixed(attempts, delay) == policy


def test_a_negative_delay_is_refused():
    with pytest.raises(InvalidTransitionError, match="negative"):
        RetryPolicy.fixed(3, -timedelta(microseconds=1))


def test_continuing_changes_only_the_ending():
    policy = RetryPolicy(5, 100).continue_workflow_on_failure()
    assert policy == RetryPolicy(5, 100, OnExhausted.CONTINUE_WORKFLOW)
    assert policy.fails_run is False
    assert RetryPolicy(5, 100).fails_run is True


@pytest.mark.parametrize(("stored", "effective"), [(0, 1), (1, 1), (2, 2), (2**32 - 1, 2**32 - 1)])
def test_a_stored_zero_counts_as_one_attempt(stored, effective):
    assert RetryPolicy(stored).attempts == effective


@pytest.mark.parametrize(
    "fields",
    [
        {"max_attempts": -1},
        {"max_attempts": 2**32},
        {"max_attempts": 10**5000},
        {"max_attempts": True},
        {"max_attempts": 1.0},
        {"max_attempts": "3"},
        {"max_attempts": None},
        {"delay_ms": -1},
        {"delay_ms": 2**64},
        {"delay_ms": 0.5},
        {"delay_ms": False},
        {"on_exhausted": "explode"},
        {"on_exhausted": None},
        {"on_exhausted": True},
    ],
    ids=lambda fields: "-".join(fields),
)
def test_a_policy_of_other_values_is_refused(fields):
    with pytest.raises(InvalidTransitionError, match=r"^retry " + next(iter(fields))):
        RetryPolicy(**fields)


@pytest.mark.parametrize("action", OnExhausted)
def test_an_action_given_as_text_is_never_taken_for_the_other(action):
    try:
        policy = RetryPolicy(on_exhausted=str(action))  # type: ignore[arg-type]
    except InvalidTransitionError:
        return
    assert policy.fails_run is RetryPolicy(on_exhausted=action).fails_run


def test_a_delay_that_no_calendar_holds_is_found_before_it_is_needed():
    RetryPolicy(2, MAX_DELAY_MS).check_representable()
    for delay_ms in (MAX_DELAY_MS + 1, 2**64 - 1):
        with pytest.raises(InvalidTransitionError, match=f"{delay_ms} ms ends after the year 9999"):
            RetryPolicy(2, delay_ms).check_representable()


def test_scenario_019_the_default_action_is_not_written():
    assert RetryPolicy(2, 5).to_tree() == {"max_attempts": 2, "delay_ms": 5}
    assert RetryPolicy(2, 5).continue_workflow_on_failure().to_tree() == {
        "max_attempts": 2,
        "delay_ms": 5,
        "on_exhausted": "continue_workflow",
    }


@pytest.mark.parametrize("policy", [RetryPolicy(0, 2**64 - 1), RetryPolicy(1).continue_workflow_on_failure()])
def test_scenario_019_a_policy_is_read_back(policy):
    assert RetryPolicy.from_tree(policy.to_tree()) == policy


def test_scenario_019_a_written_default_action_is_read_too():
    assert RetryPolicy.from_tree({"max_attempts": 2, "delay_ms": 5, "on_exhausted": "fail_run"}) == RetryPolicy(2, 5)


# --- hook metadata --------------------------------------------------------------------------------------------------


def test_scenario_062_hook_metadata_as_it_is_stored():
    metadata = (
        HookMetadata.human_approval("invoice:inv-8821")
        .with_callback_route(HookCallbackRoute.post("/hooks/{token}"))
        .with_label("team", "finance")
        .with_label("region", "eu")
        .with_data("amount", Decimal("12.50"))
    )
    assert metadata.to_value() == {
        "kind": "human_approval",
        "subject": "invoice:inv-8821",
        "callback": {"method": "POST", "path": "/hooks/{token}"},
        "labels": {"team": "finance", "region": "eu"},
        "data": {"amount": Decimal("12.50")},
    }


def test_scenario_062_unset_parts_of_hook_metadata_are_absent():
    assert HookMetadata("webhook").to_value() == {"kind": "webhook"}
    assert HookMetadata.human_approval("x").to_value() == {"kind": "human_approval", "subject": "x"}


def test_hook_metadata_is_changed_by_copies():
    base = HookMetadata("webhook")
    base.with_label("a", "1").with_data("b", 2).with_callback_route(HookCallbackRoute.post("/x"))
    assert base.to_value() == {"kind": "webhook"}


def test_a_callback_method_is_written_in_capitals():
    assert HookCallbackRoute("put", "/x").to_tree() == {"method": "PUT", "path": "/x"}


# --- progress and children ------------------------------------------------------------------------------------------


def test_progress_leaves_out_what_is_unset():
    assert WorkflowProgress("p", 0).to_payload().tree == {"progress_id": "p", "completed": 0}
    assert WorkflowProgress("p", 2, 2, "done", {"rows": [1]}).to_payload().plain == {
        "progress_id": "p",
        "completed": 2,
        "total": 2,
        "message": "done",
        "details": {"rows": [1]},
    }


@pytest.mark.parametrize(
    ("progress", "reason"),
    [
        (WorkflowProgress("", 1), "progress id is blank"),
        (WorkflowProgress("  ", 1), "progress id is blank"),
        (WorkflowProgress("p" * 201, 1), "progress id has 201"),
        (WorkflowProgress(7, 1), "progress id must be a string"),  # type: ignore[arg-type]
        (WorkflowProgress("p", -1), "progress completed"),
        (WorkflowProgress("p", 2**64), "progress completed"),
        (WorkflowProgress("p", 10**5000), "progress completed"),
        (WorkflowProgress("p", True), "progress completed"),
        (WorkflowProgress("p", 1.0), "progress completed"),  # type: ignore[arg-type]
        (WorkflowProgress("p", 0, 0), "progress total"),
        (WorkflowProgress("p", 3, 2), "more than its total 2"),
        (WorkflowProgress("p", 1, 2, 3), "progress message must be a string"),  # type: ignore[arg-type]
    ],
)
def test_scenario_080_invalid_progress_is_refused(progress, reason):
    with pytest.raises(InvalidTransitionError, match=reason):
        progress.to_payload()


@pytest.mark.parametrize(
    ("child", "reason"),
    [
        (ChildOperationReference("", "k", "o"), "child reference id is blank"),
        (ChildOperationReference("r", " ", "o"), "child kind is blank"),
        (ChildOperationReference("r", "k", "\t"), "child operation id is blank"),
        (ChildOperationReference("r", "k", "o", ""), "child flow_run_id"),
        (ChildOperationReference("r", "k", "o", "../x"), "child flow_run_id"),
        (ChildOperationReference("r", "k", 5), "child operation id must be a string"),  # type: ignore[arg-type]
    ],
)
def test_scenario_080_an_invalid_child_reference_is_refused(child, reason):
    with pytest.raises(InvalidTransitionError, match=reason):
        child.to_payload()


@pytest.mark.parametrize("extra", [float("nan"), {1: 2}, {1}, object()], ids=["nan", "int key", "set", "object"])
def test_details_and_metadata_are_payloads_and_refused_like_them(extra):
    with pytest.raises(PayloadError, match="progress details"):
        WorkflowProgress("p", 1, details=extra).to_payload()
    with pytest.raises(PayloadError, match="child metadata"):
        ChildOperationReference("r", "k", "o", metadata=extra).to_payload()


def test_progress_and_child_are_measured_whole():
    limits = Limits(max_bytes=100)
    with pytest.raises(PayloadError, match=r"^progress cannot be stored"):
        WorkflowProgress("p", 1, message="x" * 100).to_payload(limits=limits)
    with pytest.raises(PayloadError, match=r"^child operation cannot be stored"):
        ChildOperationReference("r" * 100, "k", "o").to_payload(limits=limits)


@pytest.mark.parametrize(
    "value",
    [
        WorkflowProgress("p", 2**64 - 1),
        WorkflowProgress("p", 1, 2, "half", {"$decimal": Decimal("1.10")}),
        WorkflowProgress("p", 1, details=False),
        ChildOperationReference("r", "k", "o"),
        ChildOperationReference("r", "k", "o", "run-2", [Decimal("1")]),
    ],
)
def test_progress_and_children_are_read_back(value):
    assert type(value).from_payload(value.to_payload()) == value


def test_equal_progress_has_equal_payloads_whatever_the_order_of_its_details():
    one = WorkflowProgress("p", 1, details={"a": 1, "b": 2}).to_payload()
    assert one == WorkflowProgress("p", 1, details={"b": 2, "a": 1}).to_payload()
    assert one != WorkflowProgress("p", 1, details={"a": 1.0, "b": 2}).to_payload()
    assert isinstance(one, Payload)


def test_a_reason_is_a_text_or_nothing():
    assert check_reason(None) is None
    assert check_reason("") == ""
    with pytest.raises(InvalidTransitionError, match=r"^why must be a string, not int"):
        check_reason(5, what="why")


@pytest.mark.parametrize(("attempts", "delay"), [(3, 30), (3, None), ("3", timedelta()), (None, timedelta())])
def test_a_fixed_policy_of_other_values_is_refused(attempts, delay):
    with pytest.raises(InvalidTransitionError, match=r"^retry (delay|max_attempts) must be a"):
        RetryPolicy.fixed(attempts, delay)
