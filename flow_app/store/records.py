"""Events as rows: canonical JSON text with its digest, and back."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from flow_app.core.codec import from_body, to_text
from flow_app.core.events import Event, EventEnvelope
from flow_app.core.payload import Payload, decode
from flow_app.core.ports import NewEvent, Recorded
from flow_app.errors import FlowError, StoreError
from flow_app.models.fields import as_utc
from flow_app.store.dialects import Dialect

_parse = json.JSONDecoder().scan_once  # type: ignore[attr-defined]

#: Columns that :func:`values_of` writes, after the run.
EVENT_COLUMNS = ("sequence", "event_id", "type", "payload", "digest", "meta", "recorded_at")


def values_of(
    events: Sequence[NewEvent], *, after: int, dialect: Dialect, native_uuid: bool, key: int | None = None
) -> list[Any]:
    """The values of all rows, one after the other; each begins with the run's ``key`` if there is one."""
    values: list[Any] = []
    instants: dict[datetime, Any] = {}  # events of one append mostly have one time
    for sequence, new in enumerate(events, after + 1):
        payload = to_text(new.event)
        if new.recorded_at not in instants:
            instants[new.recorded_at] = dialect.instant(new.recorded_at)
        if key is not None:
            values.append(key)
        values += (
            sequence,
            dialect.uuid(new.event_id, native=native_uuid),
            new.event.type,
            payload,
            text_digest(payload),
            meta_text(new.meta) if new.meta else "{}",
            instants[new.recorded_at],
        )
    return values


def meta_text(meta: Mapping[str, Any]) -> str:
    return Payload.of(dict(meta), what="event meta").text if meta else "{}"


def read_meta(text: str) -> dict[str, Any]:
    meta: dict[str, Any] = {} if text == "{}" else decode(json.loads(text))
    return meta


def read_recorded(run_id: str, rows: Iterable[Sequence[Any]]) -> Iterator[Recorded]:
    """Rows of (sequence, type, payload, digest, recorded_at or None), one by one as the fold needs them."""
    for sequence, kind, payload, digest, at in rows:
        yield Recorded(sequence, read_event(run_id, sequence, kind, payload, digest), at and as_utc(at))


def read_envelopes(run_id: str, rows: Iterable[Sequence[Any]]) -> list[EventEnvelope]:
    """Rows of (sequence, type, payload, digest, recorded_at, event_id, meta)."""
    return [
        EventEnvelope(
            run_id=run_id,
            sequence=sequence,
            event_id=event_id if isinstance(event_id, UUID) else UUID(event_id),
            recorded_at=_in_utc(at),
            event=read_event(run_id, sequence, kind, payload, digest),
            meta=read_meta(meta),
        )
        for sequence, kind, payload, digest, at, event_id, meta in rows
    ]


def read_event(run_id: str, sequence: int, kind: str, payload: str, digest: str) -> Event:
    """Rebuild one event. Raises StoreError when its row was tampered with or cannot be read."""
    if text_digest(payload) != digest:
        raise StoreError(f"Event {sequence} of run {run_id!r} does not match its digest: its row was changed.")
    try:
        return from_body(kind, _parse(payload, 0)[0])
    except (ValueError, StopIteration, RecursionError, FlowError) as error:
        raise StoreError(f"Event {sequence} of run {run_id!r} cannot be read back: {error}") from error


def read_payload(text: str) -> Payload:
    """A payload from its canonical text."""
    return Payload(json.loads(text))


def text_digest(payload: str) -> str:
    """SHA-256, in hex, of canonical text."""
    return hashlib.sha256(payload.encode("ascii", "replace")).hexdigest()


def _in_utc(value: datetime) -> datetime:
    return value.replace(tzinfo=UTC)  # stored in UTC, and selected as UTC
