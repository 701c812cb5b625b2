"""Events and envelopes as JSON: the stored body, the reference engine's wire form, and plain Python data.

One table says how each field is written. The stored body and the wire differ in payloads alone: stored ones keep
their type tags, on the wire they are plain JSON.
"""

from __future__ import annotations

import dataclasses
import operator
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from json.encoder import encode_basestring_ascii
from typing import Any
from uuid import UUID

from flow_app.core import instants
from flow_app.core.events import EVENT_TYPES, Event, EventEnvelope, HookCreated
from flow_app.core.payload import IMPORT_LIMITS, Payload, dumps
from flow_app.core.policy import (
    CancellationRequest,
    ChildOperationReference,
    OnExhausted,
    RetryPolicy,
    WorkflowProgress,
    check_reason,
)
from flow_app.core.spec import WorkflowSpec
from flow_app.core.tokens import as_digest
from flow_app.errors import FlowError, InvalidTransitionError, PayloadError

Tree = dict[str, Any]


@dataclass(frozen=True, slots=True)
class _Field:
    """How one field of one event travels."""

    name: str
    write: Callable[[Any], Any]
    read: Callable[[Any], Any]
    to_python: Callable[[Any], Any]
    write_text: Callable[[Any], str] | None = None  # canonical text of what ``write`` gives, where it comes cheaper
    is_payload: bool = False
    omit_null: bool = False


_tree, _value, _text = operator.attrgetter("tree"), operator.attrgetter("value"), operator.attrgetter("text")


def _same(value: Any) -> Any:
    return value


@lru_cache(maxsize=256)
def _policy_text(policy: RetryPolicy) -> str:
    return dumps(policy.to_tree())


def _read_policy(tree: Tree) -> RetryPolicy:
    return _policy(tree["max_attempts"], tree["delay_ms"], tree.get("on_exhausted", OnExhausted.FAIL_RUN))


@lru_cache(maxsize=256, typed=True)
def _policy(max_attempts: int, delay_ms: int, on_exhausted: str) -> RetryPolicy:
    """Histories repeat the few policies of their steps."""
    return RetryPolicy(max_attempts, delay_ms, OnExhausted(on_exhausted))


def _write_request(request: CancellationRequest) -> Tree:
    return {} if request.reason is None else {"reason": request.reason}


def _read_request(tree: Tree) -> CancellationRequest:
    return CancellationRequest(check_reason(tree.get("reason")))


def _nullable(convert: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda value: None if value is None else convert(value)


def _typed(kind: type, name: str) -> Callable[[Any], Any]:
    def read(value: Any) -> Any:
        if type(value) is not kind:
            raise ValueError(f"{name} must be {kind.__name__}, not {type(value).__name__}")
        return value

    return read


def _field(name: str, kind: str) -> _Field:
    match kind:
        case "Payload":
            return _Field(name, _tree, Payload, _value, _text, is_payload=True)
        case "datetime":
            return _Field(name, instants.to_text, instants.from_text, _same)
        case "datetime | None":
            write, read = _nullable(instants.to_text), _nullable(instants.from_text)
            return _Field(name, write, read, _same, omit_null=name == "expires_at")
        case "WorkflowSpec":
            return _Field(name, WorkflowSpec.to_tree, WorkflowSpec.from_tree, WorkflowSpec.to_tree)
        case "RetryPolicy":
            return _Field(name, RetryPolicy.to_tree, _read_policy, RetryPolicy.to_tree, _policy_text)
        case "CancellationRequest":
            return _Field(name, _write_request, _read_request, _write_request)
        case "int":
            return _Field(name, _same, _typed(int, name), _same, int.__repr__)
        case "str":
            return _Field(name, _same, _typed(str, name), _same, encode_basestring_ascii)
        case "str | None":
            return _Field(name, _same, _nullable(_typed(str, name)), _same)
    raise TypeError(f"no codec for {name}: {kind}")


_FIELDS: Mapping[type[Event], tuple[_Field, ...]] = {
    event: tuple(_field(field.name, typing.cast(str, field.type)) for field in dataclasses.fields(event))
    for event in EVENT_TYPES.values()
}

_LABELLED = {
    event: tuple((f"{dumps(field.name)}:", field) for field in sorted(fields, key=operator.attrgetter("name")))
    for event, fields in _FIELDS.items()
}


def _reader(event: type[Event], fields: tuple[_Field, ...]) -> Callable[[Tree], Event]:
    """Builds the event from its body. The common sizes are spelled out: a cold drive reads thousands of them."""
    match [(field.name, field.read) for field in fields]:
        case [(a, read_a), (b, read_b)]:
            return lambda body: event(read_a(body.get(a)), read_b(body.get(b)))  # type: ignore[call-arg]
        case [(a, read_a), (b, read_b), (c, read_c), (d, read_d)]:
            return lambda body: event(  # type: ignore[call-arg]
                read_a(body.get(a)), read_b(body.get(b)), read_c(body.get(c)), read_d(body.get(d))
            )
        case readers:
            return lambda body: event(*[read(body.get(name)) for name, read in readers])


_READERS = {event.type: _reader(event, fields) for event, fields in _FIELDS.items()}


def to_body(event: Event) -> Tree:
    """The tree that is stored for an event, without its type."""
    body: Tree = {}
    for field in _FIELDS[type(event)]:
        value = getattr(event, field.name)
        if value is not None or not field.omit_null:
            body[field.name] = field.write(value)
    return body


def to_text(event: Event) -> str:
    """Canonical text of :func:`to_body`, put together from the texts that payloads know already."""
    parts = []
    for label, field in _LABELLED[type(event)]:
        value = getattr(event, field.name)
        if value is None:
            if not field.omit_null:
                parts.append(label + "null")
        elif field.write_text is None:
            parts.append(label + dumps(field.write(value)))
        else:
            parts.append(label + field.write_text(value))
    return "{" + ",".join(parts) + "}"


def from_body(event_type: str, body: Tree) -> Event:
    """Rebuild a stored event. Raises PayloadError when the type is unknown or a field does not fit."""
    found = _READERS.get(event_type)
    if found is None:
        raise PayloadError(f"names the unknown event type {event_type!r}", what="stored event", cannot_be="read")
    try:
        return found(body)
    except (KeyError, TypeError, ValueError, AttributeError, FlowError) as error:
        raise PayloadError(f"is no {event_type}: {error}", what="stored event", cannot_be="read") from None


def to_data(event: Event) -> Tree:
    """The event's fields as plain Python values, payloads decoded."""
    return {field.name: field.to_python(getattr(event, field.name)) for field in _FIELDS[type(event)]}


# --- the wire -------------------------------------------------------------------------------------------------------


def event_to_wire(event: Event) -> Tree:
    wire: Tree = {"type": event.type}
    for field in _FIELDS[type(event)]:
        value = getattr(event, field.name)
        if field.is_payload:
            wire[field.name] = value.plain
        elif value is not None or not field.omit_null:
            wire[field.name] = field.write(value)
    return wire


def event_from_wire(wire: Mapping[str, Any]) -> Event:
    """Read an event of the reference engine. Raises PayloadError."""
    event_type = wire.get("type")
    kind = EVENT_TYPES.get(event_type) if isinstance(event_type, str) else None
    if kind is None:
        raise PayloadError(f"names the unknown event type {event_type!r}", what="event", cannot_be="read")
    body = dict(wire)
    try:
        for field in _FIELDS[kind]:
            if field.is_payload:
                body[field.name] = _import_payload(field.name, wire.get(field.name)).tree
        if kind is HookCreated:
            body["token"] = as_digest(body["token"])
        return from_body(kind.type, body)
    except (KeyError, TypeError, InvalidTransitionError) as error:
        raise PayloadError(f"is no {event_type}: {error!r}", what="event", cannot_be="read") from None


def _import_payload(name: str, value: Any) -> Payload:
    if name == "progress":
        return WorkflowProgress(**value).to_payload(limits=IMPORT_LIMITS)
    if name == "child":
        return ChildOperationReference(**value).to_payload(limits=IMPORT_LIMITS)
    return Payload.of(value, what=f"imported {name}", limits=IMPORT_LIMITS)


def envelope_to_wire(envelope: EventEnvelope) -> Tree:
    wire: Tree = {
        "run_id": envelope.run_id,
        "sequence": envelope.sequence,
        "event_id": str(envelope.event_id),
        "timestamp": instants.to_text(envelope.recorded_at),
        "event": event_to_wire(envelope.event),
    }
    if envelope.meta:
        wire["meta"] = dict(envelope.meta)
    return wire


def envelope_from_wire(wire: Mapping[str, Any]) -> EventEnvelope:
    try:
        return EventEnvelope(
            run_id=_typed(str, "run_id")(wire["run_id"]),
            sequence=_typed(int, "sequence")(wire["sequence"]),
            event_id=UUID(wire["event_id"]),
            recorded_at=instants.from_text(wire["timestamp"]),
            event=event_from_wire(wire["event"]),
            meta=dict(wire.get("meta") or {}),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise PayloadError(f"is no event envelope: {error!r}", what="envelope", cannot_be="read") from None
