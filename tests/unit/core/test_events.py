"""The 22 events: their names and fields, as they are stored, on the wire, and as plain data."""

from __future__ import annotations

import copy
import json
from datetime import UTC, datetime
from decimal import Decimal
from uuid import UUID

import pytest

from flow_app.core import codec
from flow_app.core import events as ev
from flow_app.core.payload import Payload, dumps
from flow_app.core.policy import CancellationRequest, RetryPolicy
from flow_app.core.spec import RuntimeSpec, WorkflowSpec
from flow_app.core.tokens import digest
from flow_app.errors import PayloadError
from tests.unit.builders import child, progress

AT = datetime(2026, 5, 4, 12, 0, 0, 1500, tzinfo=UTC)
AT_TEXT = "2026-05-04T12:00:00.001500Z"
NATIVE = WorkflowSpec("invoice", "2", RuntimeSpec("native_ts", "a.ts", "run"))
NATIVE_TREE = {
    "name": "invoice",
    "version": "2",
    "runtime": {"kind": "native_ts", "entrypoint": "a.ts", "export_name": "run"},
}
VALUE = Payload.of({"n": [1, 1.5, None]})
PLAIN = {"n": [1, 1.5, None]}
TOKEN = digest("t")

#: event, key, fields on the wire
EVENTS = [
    (ev.RunCreated(NATIVE, VALUE), "flow.run.created", {"spec": NATIVE_TREE, "input": PLAIN}),
    (ev.RunStarted(), "flow.run.started", {}),
    (ev.RunCompleted(VALUE), "flow.run.completed", {"output": PLAIN}),
    (ev.RunFailed("boom"), "flow.run.failed", {"error": "boom"}),
    (
        ev.RunCancellationRequested(CancellationRequest("why")),
        "flow.run.cancellation.requested",
        {"request": {"reason": "why"}},
    ),
    (ev.RunCancelled("why"), "flow.run.cancelled", {"reason": "why"}),
    (ev.RunTimedOut(AT, "slow"), "flow.run.timed_out", {"deadline": AT_TEXT, "reason": "slow"}),
    (
        ev.RunRetryExhausted("a", 3, "boom"),
        "flow.run.retry_exhausted",
        {"step_id": "a", "attempt": 3, "error": "boom"},
    ),
    (ev.RunHostShutdown("deploy"), "flow.run.host_shutdown", {"reason": "deploy"}),
    (
        progress("p", 1, total=2, message="half", details={"x": 1}),
        "flow.run.progress.recorded",
        {"progress": {"progress_id": "p", "completed": 1, "total": 2, "message": "half", "details": {"x": 1}}},
    ),
    (
        child("c", "job-1", flow_run_id="run-2", metadata=[1]),
        "flow.child.operation.linked",
        {
            "child": {
                "reference_id": "c",
                "kind": "export",
                "operation_id": "job-1",
                "flow_run_id": "run-2",
                "metadata": [1],
            }
        },
    ),
    (
        ev.StepCreated("a", "charge", VALUE, RetryPolicy(3, 50)),
        "flow.step.created",
        {"step_id": "a", "step_name": "charge", "input": PLAIN, "retry": {"max_attempts": 3, "delay_ms": 50}},
    ),
    (ev.StepStarted("a", 1), "flow.step.started", {"step_id": "a", "attempt": 1}),
    (ev.StepCompleted("a", VALUE), "flow.step.completed", {"step_id": "a", "output": PLAIN}),
    (
        ev.StepRetrying("a", 1, "boom", AT),
        "flow.step.retrying",
        {"step_id": "a", "attempt": 1, "error": "boom", "retry_after": AT_TEXT},
    ),
    (ev.StepFailed("a", 2, "boom"), "flow.step.failed", {"step_id": "a", "attempt": 2, "error": "boom"}),
    (ev.WaitCreated("w", AT), "flow.wait.created", {"wait_id": "w", "resume_at": AT_TEXT}),
    (ev.WaitCompleted("w"), "flow.wait.completed", {"wait_id": "w"}),
    (
        ev.HookCreated("h", TOKEN, VALUE, AT),
        "flow.hook.created",
        {"hook_id": "h", "token": TOKEN, "metadata": PLAIN, "expires_at": AT_TEXT},
    ),
    (ev.HookReceived("h", VALUE), "flow.hook.received", {"hook_id": "h", "payload": PLAIN}),
    (ev.HookDisposed("h"), "flow.hook.disposed", {"hook_id": "h"}),
    (ev.HookExpired("h"), "flow.hook.expired", {"hook_id": "h"}),
]

#: the same events with everything optional unset: what is still written, and what is left out
BARE = [
    (ev.RunCreated(NATIVE, Payload.of(None)), {"spec": NATIVE_TREE, "input": None}),
    (ev.RunCancellationRequested(CancellationRequest()), {"request": {}}),
    (ev.RunCancelled(None), {"reason": None}),
    (ev.RunTimedOut(AT, None), {"deadline": AT_TEXT, "reason": None}),
    (ev.RunHostShutdown(None), {"reason": None}),
    (progress("p", 0), {"progress": {"progress_id": "p", "completed": 0}}),
    (child("c", "job"), {"child": {"reference_id": "c", "kind": "export", "operation_id": "job"}}),
    (
        ev.StepCreated("a", "charge", Payload.of(None), RetryPolicy.none().continue_workflow_on_failure()),
        {
            "step_id": "a",
            "step_name": "charge",
            "input": None,
            "retry": {"max_attempts": 1, "delay_ms": 0, "on_exhausted": "continue_workflow"},
        },
    ),
    (ev.StepRetrying("a", 1, "", None), {"step_id": "a", "attempt": 1, "error": "", "retry_after": None}),
    (ev.HookCreated("h", TOKEN, Payload.of(None)), {"hook_id": "h", "token": TOKEN, "metadata": None}),
    (ev.HookReceived("h", Payload.of(None)), {"hook_id": "h", "payload": None}),
    (
        ev.RunCreated(NATIVE.with_runtime_build("v1"), VALUE),
        {"spec": {**NATIVE_TREE, "runtime_build_id": "v1"}, "input": PLAIN},
    ),
]

ALL = [(event, fields) for event, _, fields in EVENTS] + BARE


def name(value: object) -> str:
    return value.type if isinstance(value, ev.Event) else ""


def test_there_are_22_events_and_each_is_shown_here():
    assert [event.type for event, _, _ in EVENTS] == list(ev.EVENT_TYPES)
    assert len(EVENTS) == 22


@pytest.mark.parametrize(("event", "key", "fields"), EVENTS, ids=name)
def test_an_event_has_a_name_and_a_key(event, key, fields):
    assert event.key == key
    assert ev.EVENT_TYPES[event.type] is type(event)


def test_six_events_end_a_run():
    assert {event.type for event, _, _ in EVENTS if event.terminal} == {
        "run_completed", "run_failed", "run_cancelled", "run_timed_out", "run_retry_exhausted", "run_host_shutdown",
    }  # fmt: skip
    assert {event.type for event in ev.CLOSING} == {
        *(event.type for event, _, _ in EVENTS if event.terminal),
        "run_cancellation_requested",
    }


@pytest.mark.parametrize(("event", "fields"), ALL, ids=name)
def test_the_wire_form_writes_what_is_nullable_and_leaves_out_what_is_optional(event, fields):
    assert codec.event_to_wire(event) == {"type": event.type, **fields}


@pytest.mark.parametrize(("event", "fields"), ALL, ids=name)
def test_an_event_is_read_back_from_the_wire(event, fields):
    wire = json.loads(json.dumps({"type": event.type, **fields}))
    assert codec.event_from_wire(wire) == event


@pytest.mark.parametrize(("event", "fields"), ALL, ids=name)
def test_an_event_is_read_back_from_its_stored_text(event, fields):
    text = codec.to_text(event)
    assert text == dumps(codec.to_body(event))
    assert codec.from_body(event.type, json.loads(text)) == event


NULLABLE = {
    "input", "output", "payload", "metadata", "progress", "child", "reason", "retry_after", "expires_at",
}  # fmt: skip


@pytest.mark.parametrize(
    ("event", "field"),
    [(event, field) for event, _, _ in EVENTS for field in codec.to_body(event) if field not in NULLABLE],
    ids=str,
)
def test_a_stored_event_with_a_part_missing_is_a_payload_error(event, field):
    body = codec.to_body(event)
    del body[field]
    with pytest.raises(PayloadError, match=f"is no {event.type}"):
        codec.from_body(event.type, body)


def test_rich_types_are_tagged_in_the_body_and_strings_on_the_wire():
    event = ev.RunCompleted(Payload.of({"price": Decimal("1.10"), "user": {"$decimal": "x"}}))
    assert codec.to_body(event) == {"output": {"price": {"$decimal": "1.10"}, "user": {"$$decimal": "x"}}}
    assert codec.event_to_wire(event)["output"] == {"price": "1.10", "user": {"$decimal": "x"}}
    assert codec.to_data(event) == {"output": {"price": Decimal("1.10"), "user": {"$decimal": "x"}}}


def test_wire_data_of_the_tagged_shape_is_plain_data():
    wire = {"type": "hook_received", "hook_id": "h", "payload": {"$decimal": "1.10"}}
    event = codec.event_from_wire(wire)
    assert isinstance(event, ev.HookReceived)
    assert event.payload.value == {"$decimal": "1.10"}
    assert codec.event_to_wire(event) == wire


def test_plain_data_of_an_event_keeps_python_values():
    assert codec.to_data(ev.StepRetrying("a", 1, "boom", AT)) == {
        "step_id": "a",
        "attempt": 1,
        "error": "boom",
        "retry_after": AT,
    }
    assert codec.to_data(progress("p", 1, details=Decimal("1")))["progress"] == {
        "progress_id": "p",
        "completed": 1,
        "details": Decimal("1"),
    }
    assert codec.to_data(ev.RunCancellationRequested(CancellationRequest())) == {"request": {}}


def test_an_imported_raw_token_is_digested_and_a_digest_stays():
    wire = {"type": "hook_created", "hook_id": "h", "token": "raw-token", "metadata": None}
    event = codec.event_from_wire(wire)
    assert event == ev.HookCreated("h", digest("raw-token"), Payload.of(None))
    assert "raw-token" not in repr(event) + dumps(codec.to_body(event))
    assert codec.event_from_wire({**wire, "token": digest("raw-token")}) == event


@pytest.mark.parametrize(
    ("wire", "field"),
    [
        ({"type": "run_progress_recorded", "progress": {"progress_id": "p", "completed": 1}}, "progress"),
        (
            {"type": "child_operation_linked", "child": {"reference_id": "r", "kind": "k", "operation_id": "o"}},
            "child",
        ),
    ],
)
def test_scenario_083_what_is_missing_on_the_wire_is_unset(wire, field):
    nulls = {"total": None, "message": None, "details": None} if field == "progress" else {}
    nulls = nulls or {"flow_run_id": None, "metadata": None}
    event = codec.event_from_wire(wire)
    assert codec.event_from_wire({**wire, field: {**wire[field], **nulls}}) == event
    assert codec.event_to_wire(event) == wire


@pytest.mark.parametrize(
    "wire",
    [
        {},
        {"type": None},
        {"type": []},
        {"type": "run_paused"},
        {"type": "RunCreated"},
        {"type": "run_created", "input": None},
        {"type": "run_created", "spec": "invoice", "input": None},
        {"type": "run_created", "spec": {"name": "a", "version": "1"}, "input": None},
        {"type": "run_failed", "error": 5},
        {"type": "run_failed"},
        {"type": "run_cancelled", "reason": 5},
        {"type": "run_cancellation_requested"},
        {"type": "run_cancellation_requested", "request": {"reason": 5}},
        {"type": "run_timed_out", "deadline": "soon"},
        {"type": "run_timed_out", "deadline": None},
        {"type": "run_timed_out", "deadline": "0001-01-01T00:00:00+05:00"},
        {"type": "step_started", "step_id": "a", "attempt": True},
        {"type": "step_started", "step_id": "a", "attempt": 1.0},
        {"type": "step_started", "step_id": 5, "attempt": 1},
        {"type": "step_created", "step_id": "a", "step_name": "b", "input": None, "retry": {"max_attempts": 1}},
        {"type": "step_created", "step_id": "a", "step_name": "b", "input": None, "retry": None},
        {
            "type": "step_created",
            "step_id": "a",
            "step_name": "b",
            "input": None,
            "retry": {"max_attempts": -1, "delay_ms": 0},
        },
        {
            "type": "step_created",
            "step_id": "a",
            "step_name": "b",
            "input": None,
            "retry": {"max_attempts": 1, "delay_ms": 0, "on_exhausted": "explode"},
        },
        {"type": "hook_created", "hook_id": "h"},
        {"type": "hook_created", "hook_id": "h", "token": 5},
        {"type": "run_completed", "output": float("nan")},
        {"type": "run_progress_recorded"},
        {"type": "run_progress_recorded", "progress": 5},
        {"type": "run_progress_recorded", "progress": {"progress_id": "p"}},
        {"type": "run_progress_recorded", "progress": {"progress_id": "", "completed": 1}},
        {"type": "run_progress_recorded", "progress": {"progress_id": "p", "completed": 3, "total": 2}},
        {"type": "run_progress_recorded", "progress": {"progress_id": "p", "completed": 1, "extra": 2}},
        {"type": "child_operation_linked", "child": {"reference_id": "r", "kind": "", "operation_id": "o"}},
    ],
    ids=lambda wire: str(wire)[:60],
)
def test_a_wire_event_of_another_shape_is_a_payload_error(wire):
    with pytest.raises(PayloadError):
        codec.event_from_wire(wire)


@pytest.mark.parametrize(
    ("event_type", "body"),
    [
        ("run_paused", {}),
        ("run_created", {"spec": None, "input": None}),
        ("step_started", {"step_id": "a", "attempt": "1"}),
        ("wait_created", {"wait_id": "w", "resume_at": 5}),
        ("run_failed", {"error": None}),
    ],
)
def test_a_stored_event_of_another_shape_is_a_payload_error(event_type, body):
    with pytest.raises(PayloadError, match=event_type):
        codec.from_body(event_type, body)


# --- envelopes ------------------------------------------------------------------------------------------------------


ID = UUID("0190aaaa-0000-4000-8000-000000000001")


def test_scenario_139_an_envelope_on_the_wire():
    envelope = ev.EventEnvelope("run-1", 3, ID, AT, ev.RunCancelled(None))
    assert envelope.to_wire() == {
        "run_id": "run-1",
        "sequence": 3,
        "event_id": str(ID),
        "timestamp": AT_TEXT,
        "event": {"type": "run_cancelled", "reason": None},
    }
    assert (envelope.type, envelope.key) == ("run_cancelled", "flow.run.cancelled")
    assert envelope.data == {"reason": None}


@pytest.mark.parametrize("event", [event for event, _ in ALL], ids=name)
@pytest.mark.parametrize("meta", [{}, {"actor": "ada", "trace": {"id": "1"}}], ids=["bare", "meta"])
def test_an_envelope_is_read_back_from_the_wire(event, meta):
    envelope = ev.EventEnvelope("run-1", 3, ID, AT, event, meta)
    assert ev.EventEnvelope.from_wire(json.loads(json.dumps(envelope.to_wire()))) == envelope


GOOD = ev.EventEnvelope("run-1", 3, ID, AT, ev.RunStarted()).to_wire()


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("run_id", 5),
        ("run_id", None),
        ("sequence", "3"),
        ("sequence", True),
        ("event_id", "x"),
        ("event_id", 5),
        ("timestamp", "yesterday"),
        ("timestamp", None),
        ("timestamp", "9999-12-31T23:59:59-01:00"),
        ("event", None),
        ("event", []),
        ("event", {"type": "run_paused"}),
        ("meta", 5),
    ],
)
def test_an_envelope_of_another_shape_is_a_payload_error(field, value):
    with pytest.raises(PayloadError):
        ev.EventEnvelope.from_wire({**GOOD, field: value})


@pytest.mark.parametrize("field", ["run_id", "sequence", "event_id", "timestamp", "event"])
def test_an_envelope_with_a_part_missing_is_a_payload_error(field):
    with pytest.raises(PayloadError):
        ev.EventEnvelope.from_wire({key: value for key, value in GOOD.items() if key != field})


#: The shape of a history that the reference engine 0.13.1 recorded (scenario 97).
RECORDED = [
    {
        "run_id": "retained-run",
        "sequence": 1,
        "event_id": "5b0c0f5e-8f0b-4a53-9a52-0d6f2f3c7e01",
        "timestamp": "2026-03-01T10:00:00.123456Z",
        "event": {
            "type": "run_created",
            "spec": {
                "name": "retained",
                "version": "1",
                "runtime": {"kind": "rust_embedded", "entrypoint": "retained", "export_name": "run"},
                "runtime_build_id": "retained-worker-v0131",
            },
            "input": {"order": 7, "ratio": 1.0, "tags": ["a", None, True]},
        },
    },
    {
        "run_id": "retained-run",
        "sequence": 2,
        "event_id": "5b0c0f5e-8f0b-4a53-9a52-0d6f2f3c7e02",
        "timestamp": "2026-03-01T10:00:00.123Z",
        "event": {"type": "run_started"},
    },
    {
        "run_id": "retained-run",
        "sequence": 3,
        "event_id": "5b0c0f5e-8f0b-4a53-9a52-0d6f2f3c7e03",
        "timestamp": "2026-03-01T10:00:01Z",
        "event": {
            "type": "step_created",
            "step_id": "charge",
            "step_name": "charge-card",
            "input": {"order": 7},
            "retry": {"max_attempts": 1, "delay_ms": 0},
        },
    },
    {
        "run_id": "retained-run",
        "sequence": 4,
        "event_id": "5b0c0f5e-8f0b-4a53-9a52-0d6f2f3c7e04",
        "timestamp": "2026-03-01T10:00:01.000001Z",
        "event": {"type": "step_started", "step_id": "charge", "attempt": 1},
    },
]


def test_scenario_097_a_recorded_history_is_written_again_as_equal_json():
    given = copy.deepcopy(RECORDED)
    written = [ev.EventEnvelope.from_wire(wire).to_wire() for wire in given]
    assert json.dumps(written, sort_keys=True) == json.dumps(RECORDED, sort_keys=True)
    assert given == RECORDED, "reading changes nothing"
