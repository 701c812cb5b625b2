"""Every error flow_app raises on purpose.

    FlowError
    ├── RunNotFoundError, RunTerminalError, InvalidRunIdError, RunConflictError
    ├── InvalidRuntimeBuildIdError, RuntimeBuildUnavailableError, RuntimeBuildRouteNotFoundError
    ├── NonDeterministicError, InvalidTransitionError, ReplayLimitExceededError
    ├── EventConflictError, LeaseLostError, StepLeaseLostError, AttemptEndedError, StoreError
    ├── HookTokenNotFoundError, HookTokenConflictError, HookTokenKeyMissingError, HookConflictError
    ├── HookPayloadError, HookSchemaError
    ├── ProgressConflictError, ChildOperationConflictError
    ├── InvalidWorkflowError, WorkflowNotRegisteredError, StepNotRegisteredError
    └── PayloadError, RuntimeFailureError, ConfigurationError

Each class has a stable ``code`` that never changes between releases: branch on it, not on the text. A hook token
never appears in the text or the ``repr`` of an error.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar


class FlowError(Exception):
    """Base of all errors of flow_app; never raised itself."""

    code: ClassVar[str] = "flow_error"

    def __reduce__(self) -> tuple[Any, ...]:
        """Survive pickling, whatever the constructor takes: result stores and parallel test runners need it."""
        return _rebuild, (type(self), self.args, self.__dict__)


def _rebuild(kind: type[FlowError], args: tuple[Any, ...], attributes: dict[str, Any]) -> FlowError:
    error = kind.__new__(kind, *args)
    error.args = args
    error.__dict__.update(attributes)
    return error


class RunNotFoundError(FlowError):
    """No run has this id."""

    code = "run_not_found"

    def __init__(self, run_id: str) -> None:
        super().__init__(
            f"Run {run_id!r} does not exist. Check the id, and the database that FLOW_APP['DATABASE'] names."
        )
        self.run_id = run_id


class RunTerminalError(FlowError):
    """The run has ended, so it takes no more of this."""

    code = "run_terminal"

    def __init__(self, run_id: str, what: str = "this") -> None:
        super().__init__(f"Run {run_id!r} has ended and takes no more {what}.")
        self.run_id = run_id


class InvalidRunIdError(FlowError):
    """The run id uses characters or a length that are not allowed."""

    code = "invalid_run_id"

    def __init__(self, run_id: object) -> None:
        super().__init__(
            f"{run_id!r} is not a run id. Use 1 to 128 ASCII letters, digits, '-', '_', '.' or ':', "
            "starting with a letter or digit."
        )
        self.run_id = run_id


class RunConflictError(FlowError):
    """The run exists, and what was asked contradicts what it recorded."""

    code = "run_conflict"

    def __init__(self, run_id: str, reason: str) -> None:
        super().__init__(f"Run {run_id!r} already stands otherwise: {reason}.")
        self.run_id = run_id
        self.reason = reason


class InvalidRuntimeBuildIdError(FlowError):
    """A runtime build id is malformed."""

    code = "invalid_runtime_build_id"

    def __init__(self, value: object) -> None:
        super().__init__(
            f"{value!r} is not a runtime build id. Use 1 to 128 ASCII letters, digits or '-_.:+/@', "
            "with a letter or digit first and last."
        )
        self.value = value


class RuntimeBuildUnavailableError(FlowError):
    """This process may not run code for the build the run is pinned to. Nothing was written."""

    code = "runtime_build_unavailable"

    def __init__(self, run_id: str, *, required: str | None, current: str | None) -> None:
        wants = f"needs build {required!r}" if required else "is not pinned to a build"
        super().__init__(
            f"Run {run_id!r} {wants}, but this process runs build {current!r}. Start a worker of that build, "
            "or add it to FLOW_APP['BUILD']['compatible'] (for unpinned runs: 'accept_unpinned')."
        )
        self.run_id = run_id
        self.required = required
        self.current = current


class RuntimeBuildRouteNotFoundError(FlowError):
    """No dispatcher is registered for a build that has work due."""

    code = "runtime_build_route_not_found"

    def __init__(self, required: str | None) -> None:
        what = f"build {required!r}" if required else "unpinned runs"
        super().__init__(f"No route leads to workers for {what}. Register one with the RuntimeBuildTaskRouter.")
        self.required = required


class NonDeterministicError(FlowError):
    """The workflow used an id again with other arguments than its history records."""

    code = "non_deterministic"

    def __init__(self, run_id: str, reason: str) -> None:
        super().__init__(
            f"Run {run_id!r} does not replay: {reason}. Restore the code that wrote this history, or use a new id."
        )
        self.run_id = run_id
        self.reason = reason


class InvalidTransitionError(FlowError):
    """A command, a host call or a recorded event is not allowed in the state the run is in."""

    code = "invalid_transition"

    def __init__(self, reason: str, *, run_id: str | None = None) -> None:
        super().__init__(f"Run {run_id!r}: {reason}." if run_id else f"{reason}.")
        self.run_id = run_id
        self.reason = reason


class ReplayLimitExceededError(FlowError):
    """The drive went round ``limit`` times in a row without appending anything."""

    code = "replay_limit_exceeded"

    def __init__(self, run_id: str, limit: int) -> None:
        super().__init__(
            f"Run {run_id!r} made no progress in {limit} attempts in a row (FLOW_APP['REPLAY_LIMIT']). "
            "Something appends to it faster than it can be driven."
        )
        self.run_id = run_id
        self.limit = limit


class EventConflictError(FlowError):
    """Somebody else appended first: the run's last sequence is not the expected one. Nothing was written."""

    code = "event_conflict"

    def __init__(self, run_id: str, *, expected: int, actual: int | None) -> None:
        super().__init__(f"Run {run_id!r} was expected to end at event {expected}, but ends at {actual}.")
        self.run_id = run_id
        self.expected = expected
        self.actual = actual


class LeaseLostError(FlowError):
    """The lease on the run was taken over by another worker, so this one must stop. Nothing was written."""

    code = "lease_lost"
    epoch: int | None  # None where it is an attempt of a step that is held

    def __init__(self, run_id: str, epoch: int) -> None:
        super().__init__(f"Run {run_id!r}: the lease with epoch {epoch} is no longer held by this worker.")
        self.run_id = run_id
        self.epoch = epoch


class StepLeaseLostError(LeaseLostError):
    """An attempt of a step was given to another worker, or has ended. Nothing was written."""

    code = "step_lease_lost"

    def __init__(self, run_id: str, step_id: str, attempt: int) -> None:
        FlowError.__init__(
            self,
            f"Run {run_id!r}: attempt {attempt} of step {step_id!r} is no longer this worker's: it has ended, or was "
            "given to another one. Nothing was written.",
        )
        self.run_id = run_id
        self.epoch = None
        self.step_id = step_id
        self.attempt = attempt


class AttemptEndedError(FlowError):
    """Nobody waits for this attempt of a step any more: its body should stop. What it did stays done."""

    code = "attempt_ended"

    def __init__(self, run_id: str, step_id: str, attempt: int) -> None:
        super().__init__(
            f"Run {run_id!r}: nobody waits for attempt {attempt} of step {step_id!r} any more. Its time is over, "
            "the run has ended, or another worker has it. Nothing is written for it."
        )
        self.run_id = run_id
        self.step_id = step_id
        self.attempt = attempt


class StoreError(FlowError):
    """The database refused, or a stored row cannot be read back."""

    code = "store"


class HookTokenNotFoundError(FlowError):
    """No active hook has this token. The token is kept in ``token`` and never shown."""

    code = "hook_token_not_found"

    def __init__(self, token: str) -> None:
        super().__init__("No active hook has this token (token not shown). It may be resolved, expired or mistyped.")
        self.token = token


class HookTokenConflictError(FlowError):
    """The token is active on another hook, and one token opens one door."""

    code = "hook_token_conflict"

    def __init__(self, *, owner_run_id: str, owner_hook_id: str) -> None:
        super().__init__(
            f"The token (not shown) is active on hook {owner_hook_id!r} of run {owner_run_id!r}. "
            "Use another token, or resolve that hook first."
        )
        self.owner_run_id = owner_run_id
        self.owner_hook_id = owner_hook_id


class HookTokenKeyMissingError(FlowError):
    """The hook exists, but no current secret key derives its token."""

    code = "hook_token_key_missing"

    def __init__(self, run_id: str, hook_id: str) -> None:
        super().__init__(
            f"Run {run_id!r}: no key among SECRET_KEY and SECRET_KEY_FALLBACKS derives the token of hook {hook_id!r}. "
            "Add the key it was created with to SECRET_KEY_FALLBACKS; a token given by hand cannot be derived."
        )
        self.run_id = run_id
        self.hook_id = hook_id


class HookConflictError(FlowError):
    """The hook is already resolved in another way; ``reason`` says how it stands."""

    code = "hook_conflict"

    def __init__(self, run_id: str, hook_id: str, reason: str) -> None:
        super().__init__(f"Hook {hook_id!r} of run {run_id!r}: {reason}.")
        self.run_id = run_id
        self.hook_id = hook_id
        self.reason = reason


class HookPayloadError(FlowError):
    """An answer is not as its hook declares; ``problems`` are pairs of a JSON pointer and what is wrong there."""

    code = "hook_payload"

    def __init__(self, hook_id: str, problems: Sequence[tuple[str, str]]) -> None:
        said = "; ".join(f"{pointer or 'the answer'}: {text}" for pointer, text in problems)
        super().__init__(f"Hook {hook_id!r} stays open, for its answer is not as declared: {said}.")
        self.hook_id = hook_id
        self.problems = tuple(problems)


class HookSchemaError(FlowError):
    """What a hook declares about its answers is no JSON Schema, or refers to one elsewhere, so none can be checked."""

    code = "hook_schema"

    def __init__(self, hook_id: str, reason: str) -> None:
        super().__init__(
            f"The payload schema of hook {hook_id!r} cannot be used: {reason}. Correct the workflow; the engine's "
            "verbs answer the hook unchecked."
        )
        self.hook_id = hook_id
        self.reason = reason


class ProgressConflictError(FlowError):
    """The host recorded this progress id before, with other content."""

    code = "progress_conflict"

    def __init__(self, run_id: str, progress_id: str) -> None:
        super().__init__(
            f"Run {run_id!r} has recorded progress {progress_id!r} with other content. Use a new progress id."
        )
        self.run_id = run_id
        self.progress_id = progress_id


class ChildOperationConflictError(FlowError):
    """The host linked this reference id before, with other content."""

    code = "child_operation_conflict"

    def __init__(self, run_id: str, reference_id: str) -> None:
        super().__init__(
            f"Run {run_id!r} has linked child operation {reference_id!r} with other content. Use a new reference id."
        )
        self.run_id = run_id
        self.reference_id = reference_id


class InvalidWorkflowError(FlowError):
    """A workflow definition or specification is not valid."""

    code = "invalid_workflow"


class WorkflowNotRegisteredError(InvalidWorkflowError):
    """No workflow of this name is registered in this process."""

    code = "workflow_not_registered"

    def __init__(self, name: str) -> None:
        super().__init__(
            f"No workflow named {name!r} is registered. Define it with @workflow({name!r}) in a workflows.py "
            "of an installed app."
        )
        self.name = name


class StepNotRegisteredError(FlowError):
    """No step of this name is registered in this process."""

    code = "step_not_registered"

    def __init__(self, name: str) -> None:
        super().__init__(
            f"No step named {name!r} is registered. Define it with @step({name!r}) where a workflows.py imports it."
        )
        self.name = name


class PayloadError(FlowError):
    """A value cannot be stored or read back; ``path`` says where in it, as ``$.items[3].price``."""

    code = "payload"

    def __init__(self, reason: str, *, path: str = "$", what: str = "value", cannot_be: str = "stored") -> None:
        super().__init__(f"{what} cannot be {cannot_be}: {path} {reason}.")
        self.reason = reason
        self.path = path
        self.what = what


class RuntimeFailureError(FlowError):
    """Workflow code failed, or a step's task died without a result. Nothing of the decision was written."""

    code = "runtime"


class ConfigurationError(FlowError):
    """A setting, a decorator or a route is declared wrongly."""

    code = "configuration"
