"""The row of a step that travels: how it is written, read, and fenced."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Any

from flow_app.core.payload import Payload
from flow_app.core.policy import RetryPolicy
from flow_app.core.ports import RunIdentity, RunRow
from flow_app.core.remote import NewStep, StepOut
from flow_app.core.spec import WorkflowSpec
from flow_app.models import StepExecution
from flow_app.models.keys import text_key
from flow_app.store.records import read_payload

_MILLISECOND = timedelta(milliseconds=1)
_COLUMNS = (
    "id", "step_id", "attempt", "fencing_token", "deliveries", "late", "step_name", "input", "retry", "spec", "queue",
    "timeout_ms",
)  # fmt: skip
#: What is noted of a step that is sent, with the types that PostgreSQL has for it.
SENT = {
    "step_id": "text", "step_key": "text", "attempt": "bigint", "step_name": "text", "input": "text", "retry": "text",
    "spec": "text", "queue": "text", "timeout_ms": "bigint",
}  # fmt: skip
#: The select list that :func:`step_out` reads after whether it is held, timed out, and its run paused.
READ = ", ".join(
    [*(f"e.{name}" for name in _COLUMNS), *(f"r.{name}" for name in ("id", "run_id", "workflow", "build"))]
)
#: A condition with the ``now`` of a dialect.
IN_TIME = "(times_out_at IS NULL OR times_out_at > {now})"


def sent_values(step: NewStep) -> tuple[Any, ...]:
    """The values of :data:`SENT`."""
    return (
        step.step_id,
        text_key(step.step_id),
        step.attempt,
        step.step_name,
        step.input.text,
        _policy_text(step.retry),
        _spec_text(step.spec),
        step.queue,
        None if step.timeout is None else max(step.timeout // _MILLISECOND, 1),
    )


def execution(row: RunRow, step: NewStep, wake_at: datetime) -> StepExecution:
    return StepExecution(run_id=row.key, wake_at=wake_at, **dict(zip(SENT, sent_values(step), strict=True)))


@lru_cache(maxsize=256)
def _policy_text(policy: RetryPolicy) -> str:
    return Payload(policy.to_tree()).text


@lru_cache(maxsize=256)
def _spec_text(spec: WorkflowSpec) -> str:
    return Payload(spec.to_tree()).text


@lru_cache(maxsize=256)
def _policy(text: str) -> RetryPolicy:
    return RetryPolicy.from_tree(json.loads(text))


@lru_cache(maxsize=256)
def _spec(text: str) -> WorkflowSpec:
    return WorkflowSpec.from_tree(json.loads(text))


def step_out(values: Sequence[Any]) -> StepOut:
    held, timed_out, paused, *values = values
    key, step_id, attempt, token, deliveries, late, name, given, retry, spec, queue, timeout, *run = values
    return StepOut(
        key=key,
        run=RunIdentity(*run),
        step_id=step_id,
        attempt=attempt,
        token=token,
        deliveries=deliveries,
        held=bool(held),
        timed_out=bool(timed_out),
        paused=bool(paused),
        late=bool(late),
        step_name=name,
        input=read_payload(given),
        retry=_policy(retry),
        spec=_spec(spec),
        queue=queue,
        timeout=None if timeout is None else timeout * _MILLISECOND,
    )
