from __future__ import annotations

import copy
import pickle

import pytest

from flow_app import errors
from flow_app.errors import FlowError

#: The contract: never change a code, only add.
CODES = {
    "FlowError": "flow_error",
    "RunNotFoundError": "run_not_found",
    "RunTerminalError": "run_terminal",
    "InvalidRunIdError": "invalid_run_id",
    "RunConflictError": "run_conflict",
    "InvalidRuntimeBuildIdError": "invalid_runtime_build_id",
    "RuntimeBuildUnavailableError": "runtime_build_unavailable",
    "RuntimeBuildRouteNotFoundError": "runtime_build_route_not_found",
    "NonDeterministicError": "non_deterministic",
    "InvalidTransitionError": "invalid_transition",
    "ReplayLimitExceededError": "replay_limit_exceeded",
    "EventConflictError": "event_conflict",
    "LeaseLostError": "lease_lost",
    "StepLeaseLostError": "step_lease_lost",
    "AttemptEndedError": "attempt_ended",
    "StoreError": "store",
    "HookTokenNotFoundError": "hook_token_not_found",
    "HookTokenConflictError": "hook_token_conflict",
    "HookTokenKeyMissingError": "hook_token_key_missing",
    "HookConflictError": "hook_conflict",
    "HookPayloadError": "hook_payload",
    "HookSchemaError": "hook_schema",
    "ProgressConflictError": "progress_conflict",
    "ChildOperationConflictError": "child_operation_conflict",
    "InvalidWorkflowError": "invalid_workflow",
    "WorkflowNotRegisteredError": "workflow_not_registered",
    "StepNotRegisteredError": "step_not_registered",
    "PayloadError": "payload",
    "RuntimeFailureError": "runtime",
    "ConfigurationError": "configuration",
}


def all_errors() -> dict[str, type[FlowError]]:
    return {name: kind for name, kind in vars(errors).items() if isinstance(kind, type) and issubclass(kind, FlowError)}


def test_every_error_has_its_code_of_its_own():
    found = {name: vars(kind).get("code") for name, kind in all_errors().items()}
    assert {name: code for name, code in found.items() if name in CODES} == CODES
    assert len(set(found.values())) == len(found)
    assert None not in found.values()


def test_the_drawing_of_the_module_names_every_error():
    for name in all_errors():
        assert name in (errors.__doc__ or "")


EXAMPLES = [
    (errors.RunNotFoundError("r"), {"run_id": "r"}, "Run 'r' does not exist"),
    (errors.RunTerminalError("r", "progress"), {"run_id": "r"}, "'r' has ended and takes no more progress"),
    (errors.InvalidRunIdError("../x"), {"run_id": "../x"}, "'../x' is not a run id"),
    (errors.RunConflictError("r", "spec"), {"run_id": "r", "reason": "spec"}, "stands otherwise: spec"),
    (errors.InvalidRuntimeBuildIdError("-"), {"value": "-"}, "'-' is not a runtime build id"),
    (
        errors.RuntimeBuildUnavailableError("r", required="v1", current="v2"),
        {"run_id": "r", "required": "v1", "current": "v2"},
        "needs build 'v1', but this process runs build 'v2'",
    ),
    (
        errors.RuntimeBuildUnavailableError("r", required=None, current="v2"),
        {"required": None, "current": "v2"},
        "is not pinned to a build",
    ),
    (errors.RuntimeBuildRouteNotFoundError("v1"), {"required": "v1"}, "build 'v1'"),
    (errors.RuntimeBuildRouteNotFoundError(None), {"required": None}, "unpinned runs"),
    (errors.NonDeterministicError("r", "why"), {"run_id": "r", "reason": "why"}, "does not replay: why"),
    (errors.InvalidTransitionError("why"), {"run_id": None, "reason": "why"}, "why."),
    (errors.InvalidTransitionError("why", run_id="r"), {"run_id": "r"}, "Run 'r': why."),
    (errors.ReplayLimitExceededError("r", 5), {"run_id": "r", "limit": 5}, "no progress in 5 attempts"),
    (
        errors.EventConflictError("r", expected=3, actual=4),
        {"expected": 3, "actual": 4},
        "at event 3, but ends at 4",
    ),
    (errors.LeaseLostError("r", 7), {"run_id": "r", "epoch": 7}, "epoch 7"),
    (errors.StepLeaseLostError("r", "s", 2), {"run_id": "r", "step_id": "s", "attempt": 2}, "no longer this"),
    (errors.AttemptEndedError("r", "s", 2), {"run_id": "r", "step_id": "s", "attempt": 2}, "nobody waits"),
    (
        errors.HookTokenConflictError(owner_run_id="r", owner_hook_id="h"),
        {"owner_run_id": "r", "owner_hook_id": "h"},
        "hook 'h' of run 'r'",
    ),
    (errors.HookTokenKeyMissingError("r", "h"), {"run_id": "r", "hook_id": "h"}, "SECRET_KEY_FALLBACKS"),
    (errors.HookSchemaError("h", "no"), {"hook_id": "h", "reason": "no"}, "hook 'h' cannot be used: no."),
    (
        errors.HookPayloadError("h", [("/amount", "is no number")]),
        {"hook_id": "h", "problems": (("/amount", "is no number"),)},
        "/amount: is no number",
    ),
    (
        errors.HookConflictError("r", "h", "no"),
        {"run_id": "r", "hook_id": "h", "reason": "no"},
        "'h' of run 'r': no",
    ),
    (errors.ProgressConflictError("r", "p"), {"run_id": "r", "progress_id": "p"}, "progress 'p'"),
    (errors.ChildOperationConflictError("r", "c"), {"reference_id": "c"}, "child operation 'c'"),
    (errors.WorkflowNotRegisteredError("w"), {"name": "w"}, "@workflow('w')"),
    (errors.StepNotRegisteredError("s"), {"name": "s"}, "@step('s')"),
    (errors.PayloadError("is odd", path="$.a", what="input"), {"path": "$.a", "what": "input"}, "$.a is odd"),
    (errors.FlowError("odd"), {}, "odd"),
    (errors.StoreError("odd row"), {}, "odd row"),
    (errors.HookTokenNotFoundError("t0ken"), {"token": "t0ken"}, "token not shown"),
    (errors.InvalidWorkflowError("odd name"), {}, "odd name"),
    (errors.RuntimeFailureError("odd code"), {}, "odd code"),
    (errors.ConfigurationError("odd setting"), {}, "odd setting"),
    (
        errors.PayloadError("is odd", what="stored payload", cannot_be="read"),
        {"what": "stored payload"},
        "stored payload cannot be read: $ is odd",
    ),
    (errors.HookTokenKeyMissingError("r", "h"), {}, "a token given by hand cannot be derived"),
]
each_example = pytest.mark.parametrize(
    ("error", "attributes", "text"),
    EXAMPLES,
    ids=lambda value: type(value).__name__ if isinstance(value, FlowError) else "",
)


@each_example
def test_an_error_says_what_happened_and_keeps_its_parts(error, attributes, text):
    assert text in str(error)
    assert {name: getattr(error, name) for name in attributes} == attributes


def test_an_unregistered_workflow_is_an_invalid_one():
    assert issubclass(errors.WorkflowNotRegisteredError, errors.InvalidWorkflowError)


def test_every_error_has_an_example():
    assert {type(error) for error, _, _ in EXAMPLES} == set(all_errors().values())


@each_example
@pytest.mark.parametrize("again", [copy.copy, copy.deepcopy, lambda error: pickle.loads(pickle.dumps(error))])
def test_an_error_survives_pickling_and_copying_whole(error, attributes, text, again):
    twin = again(error)
    assert type(twin) is type(error)
    assert (str(twin), repr(twin), twin.args, vars(twin)) == (str(error), repr(error), error.args, vars(error))
