"""The small value objects that commands and events carry."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from enum import StrEnum
from typing import Any, TypeVar

from flow_app.core.identifiers import check_id, check_run_id
from flow_app.core.instants import MAX_DELAY_MS
from flow_app.core.payload import DEFAULT_LIMITS, Json, Limits, Payload, with_article
from flow_app.errors import InvalidRunIdError, InvalidTransitionError

_U32 = 2**32 - 1
_U64 = 2**64 - 1


def _whole(value: object, *, what: str, top: int, least: int = 0) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidTransitionError(f"{what} must be a whole number, not {type(value).__name__}")
    if not least <= value <= top:
        raise InvalidTransitionError(f"{what} is outside {least} to {top}")  # the number may be endless
    return int(value)


T = TypeVar("T")


def expect(kind: type[T], value: object, *, what: str) -> T:
    """The value, or InvalidTransitionError when it is of another kind."""
    if not isinstance(value, kind):
        raise InvalidTransitionError(f"{what} must be {with_article(kind.__name__)}, not {type(value).__name__}")
    return value


class OnExhausted(StrEnum):
    """What happens when a step has no attempt left."""

    FAIL_RUN = "fail_run"
    CONTINUE_WORKFLOW = "continue_workflow"


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How often a step is tried, with a fixed delay between attempts. Default: three attempts at once.

    ``max_attempts`` counts the first one; ``delay_ms`` is in milliseconds, 0 tries again in the same drive.
    """

    max_attempts: int = 3
    delay_ms: int = 0
    on_exhausted: OnExhausted = OnExhausted.FAIL_RUN

    def __post_init__(self) -> None:
        _whole(self.max_attempts, what="retry max_attempts", top=_U32)
        _whole(self.delay_ms, what="retry delay_ms", top=_U64)
        if not isinstance(self.on_exhausted, OnExhausted):  # a text would pass for neither action
            raise InvalidTransitionError(f"retry on_exhausted must be an OnExhausted, not {self.on_exhausted!r}")

    @classmethod
    def none(cls) -> RetryPolicy:
        """One attempt."""
        return cls(max_attempts=1)

    @classmethod
    def fixed(cls, max_attempts: int, delay: timedelta = timedelta()) -> RetryPolicy:
        """``max_attempts`` attempts (at least one), ``delay`` apart; a part of a millisecond counts as a whole one."""
        if expect(timedelta, delay, what="retry delay") < timedelta():
            raise InvalidTransitionError(f"retry delay {delay} is negative")
        attempts = max(1, max_attempts) if isinstance(max_attempts, int) else max_attempts
        return cls(max_attempts=attempts, delay_ms=-(delay // timedelta(microseconds=1) // -1000))

    def continue_workflow_on_failure(self) -> RetryPolicy:
        """The same policy, but the last failure goes back to the workflow instead of failing the run."""
        return replace(self, on_exhausted=OnExhausted.CONTINUE_WORKFLOW)

    @property
    def attempts(self) -> int:
        """The effective number of attempts: a stored 0 counts as 1."""
        return max(1, self.max_attempts)

    @property
    def fails_run(self) -> bool:
        return self.on_exhausted is OnExhausted.FAIL_RUN

    def check_representable(self) -> None:
        """Raise InvalidTransitionError when no calendar can hold the delay."""
        if self.delay_ms > MAX_DELAY_MS:
            raise InvalidTransitionError(f"retry delay of {self.delay_ms} ms ends after the year 9999")

    def to_tree(self) -> dict[str, Json]:
        tree: dict[str, Json] = {"max_attempts": self.max_attempts, "delay_ms": self.delay_ms}
        if not self.fails_run:
            tree["on_exhausted"] = str(self.on_exhausted)
        return tree

    @classmethod
    def from_tree(cls, tree: Mapping[str, Any]) -> RetryPolicy:
        return cls(
            max_attempts=tree["max_attempts"],
            delay_ms=tree["delay_ms"],
            on_exhausted=OnExhausted(tree.get("on_exhausted", OnExhausted.FAIL_RUN)),
        )


DEFAULT_RETRY = RetryPolicy()


@dataclass(frozen=True, slots=True)
class HookCallbackRoute:
    """Where an outside system may answer a hook. ``path`` is free text, such as a template with ``{token}``."""

    method: str
    path: str

    @classmethod
    def post(cls, path: str) -> HookCallbackRoute:
        return cls("POST", path)

    def to_tree(self) -> dict[str, Json]:
        return {"method": self.method.upper(), "path": self.path}


@dataclass(frozen=True, slots=True)
class HookMetadata:
    """What a hook is for, in a form that pages and inboxes can show. Any other JSON is equally legal metadata."""

    kind: str
    subject: str | None = None
    callback: HookCallbackRoute | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    data: Mapping[str, Any] = field(default_factory=dict)
    payload_schema: Any = None

    @classmethod
    def human_approval(cls, subject: str) -> HookMetadata:
        """An approval by a person of ``subject``, such as ``"invoice:inv-8821"``."""
        return cls("human_approval", subject)

    def with_callback_route(self, route: HookCallbackRoute) -> HookMetadata:
        return replace(self, callback=route)

    def with_label(self, name: str, value: str) -> HookMetadata:
        return replace(self, labels={**self.labels, name: value})

    def with_data(self, name: str, value: object) -> HookMetadata:
        return replace(self, data={**self.data, name: value})

    def with_payload_schema(self, schema: Mapping[str, Any] | bool) -> HookMetadata:
        """Declare, as a JSON Schema, what answers must look like. Pages and the API check it; the verbs do not."""
        return replace(self, payload_schema=schema)

    def to_value(self) -> dict[str, Any]:
        """The JSON that is stored; what is unset or empty is left out."""
        value: dict[str, Any] = {"kind": self.kind}
        if self.subject is not None:
            value["subject"] = self.subject
        if self.callback is not None:
            value["callback"] = self.callback.to_tree()
        if self.labels:
            value["labels"] = dict(self.labels)
        if self.data:
            value["data"] = dict(self.data)
        if self.payload_schema is not None:
            value["payload_schema"] = self.payload_schema
        return value


@dataclass(frozen=True, slots=True)
class CancellationRequest:
    """Why a run was asked to stop; immutable once recorded."""

    reason: str | None = None


@dataclass(frozen=True, slots=True)
class WorkflowProgress:
    """How far a run has come, for people who watch it. ``progress_id`` is stable, one entry per id."""

    progress_id: str
    completed: int
    total: int | None = None
    message: str | None = None
    details: Any = None

    def to_payload(self, *, limits: Limits = DEFAULT_LIMITS) -> Payload:
        """Check and encode it. Raises InvalidTransitionError or PayloadError."""
        tree: dict[str, Json] = {
            "progress_id": check_id(self.progress_id, what="progress id"),
            "completed": _whole(self.completed, what="progress completed", top=_U64),
        }
        if self.total is not None:
            tree["total"] = total = _whole(self.total, what="progress total", top=_U64, least=1)
            if self.completed > total:
                raise InvalidTransitionError(f"progress completed {self.completed} is more than its total {total}")
        if self.message is not None:
            tree["message"] = _text(self.message, what="progress message")
        if self.details is not None:
            tree["details"] = Payload.of(self.details, what="progress details", limits=limits).tree
        payload = Payload(tree)
        payload.check_size(what="progress", limits=limits)
        return payload

    @classmethod
    def from_payload(cls, payload: Payload) -> WorkflowProgress:
        return cls(**payload.value)


@dataclass(frozen=True, slots=True)
class ChildOperationReference:
    """A child task that another system owns. It is recorded and shown, never driven or cancelled."""

    reference_id: str
    kind: str
    operation_id: str
    flow_run_id: str | None = None
    metadata: Any = None

    def to_payload(self, *, limits: Limits = DEFAULT_LIMITS) -> Payload:
        """Check and encode it. Raises InvalidTransitionError or PayloadError."""
        tree: dict[str, Json] = {
            "reference_id": check_id(self.reference_id, what="child reference id"),
            "kind": check_id(self.kind, what="child kind"),
            "operation_id": check_id(self.operation_id, what="child operation id"),
        }
        if self.flow_run_id is not None:
            try:
                tree["flow_run_id"] = check_run_id(self.flow_run_id)
            except InvalidRunIdError as error:
                raise InvalidTransitionError(f"child flow_run_id: {error}") from None
        if self.metadata is not None:
            tree["metadata"] = Payload.of(self.metadata, what="child metadata", limits=limits).tree
        payload = Payload(tree)
        payload.check_size(what="child operation", limits=limits)
        return payload

    @classmethod
    def from_payload(cls, payload: Payload) -> ChildOperationReference:
        return cls(**payload.value)


def _text(value: object, *, what: str) -> str:
    if not isinstance(value, str):
        raise InvalidTransitionError(f"{what} must be a string, not {type(value).__name__}")
    return str.__str__(value)


def check_reason(value: object, *, what: str = "reason") -> str | None:
    """A free text or None; raise InvalidTransitionError for anything else."""
    return None if value is None else _text(value, what=what)
