# ruff: noqa: S608 - the SQL is put together from names in this package; every value is a parameter
"""Writing the log: a run with its first events, and events after the last one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar
from uuid import UUID

from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.utils import CursorWrapper
from django.db.utils import IntegrityError

from flow_app.core.payload import Json, Payload, clean_text
from flow_app.core.ports import NewEvent, NewRun, RunChange, RunRow
from flow_app.errors import (
    EventConflictError,
    HookTokenConflictError,
    InvalidTransitionError,
    LeaseLostError,
    RunConflictError,
    RunNotFoundError,
    StoreError,
)
from flow_app.models import Hook, RunLabel, Tombstone
from flow_app.models.keys import text_key
from flow_app.store import chunks, statements
from flow_app.store.projections import Projector, leaves_rows, new_tokens
from flow_app.store.records import EVENT_COLUMNS, values_of
from flow_app.store.rows import columns_of, moved
from flow_app.store.transactions import Begun, Transactions, cursor_of

T = TypeVar("T")

_CHUNK = 100  # rows per INSERT: SQLite counts parameters
_TOKEN_ATTEMPTS = 3
_WIDTH = 1 + len(EVENT_COLUMNS)  # the run's key comes first
_PAYLOAD, _META = 1 + EVENT_COLUMNS.index("payload"), 1 + EVENT_COLUMNS.index("meta")


class Appending(Transactions):
    """The two ways into the log."""

    # --- a new run ----------------------------------------------------------------------------------------------------

    def create(self, run: NewRun, events: Sequence[NewEvent]) -> RunRow | None:
        """Insert a run with its first events; None when the id is taken. A caller's transaction survives that."""
        columns, values = self._run_columns(run, events)
        plain = not run.labels and not leaves_rows(events, active_hooks=0) and len(events) <= _CHUNK

        def insert() -> int | None:
            if plain and self.dialect.has_writing_cte:
                return self._create_in_one(columns, values, events)
            with self.atomic(savepoint=not plain):
                return self._create_in_steps(run, columns, values, events)

        key = self._with_token_owner(insert, events)
        if key is None:
            self._refuse_deleted(run.run_id)
            return None
        return moved(run.row(key), run.change, len(events))

    def _run_columns(self, run: NewRun, events: Sequence[NewEvent]) -> tuple[tuple[str, ...], list[Any]]:
        labels: Json = {_text(name, what="label name"): clean_text(value) for name, value in run.labels.items()}
        created = self.dialect.instant(events[0].recorded_at)
        fixed: dict[str, Any] = {
            "run_id": run.run_id,
            "run_key": text_key(run.run_id),
            "workflow": _text(run.workflow, what="workflow name"),
            "version": _text(run.version, what="workflow version"),
            "build": None if run.build is None else _text(run.build, what="runtime build"),
            "subject": _text(run.subject, what="subject"),
            "labels": Payload(labels).text if labels else "{}",
            "last_sequence": len(events),
            "lease_epoch": run.lease_epoch,
            "created_at": created,
        }
        fixed.update(zip(*columns_of(run.change, self.dialect), strict=True))
        return tuple(fixed), list(fixed.values())

    def _create_in_one(self, columns: tuple[str, ...], values: list[Any], events: Sequence[NewEvent]) -> int | None:
        sql = statements.create_in_one(self.dialect, columns, len(events))
        rows = self.fetch(
            sql, [*values, values[columns.index("run_key")], *self._event_values(self.connection, events, after=0)]
        )
        return rows[0][0] if rows else None

    def _create_in_steps(
        self, run: NewRun, columns: tuple[str, ...], values: list[Any], events: Sequence[NewEvent]
    ) -> int | None:
        with cursor_of(self.connection) as cursor:
            cursor.execute(statements.insert_run(self.dialect, columns), [*values, values[columns.index("run_key")]])
            if cursor.rowcount < 1:
                return None
            key: int = cursor.fetchone()[0] if self.dialect.has_writing_cte else cursor.lastrowid
            self._insert_events(cursor, key, events, after=0)
        if run.labels:
            RunLabel.objects.using(self.using).bulk_create(_label_rows(key, run))
        self._project(key, run.run_id, events, after=0, active_hooks=0)
        return key

    def _refuse_deleted(self, run_id: str) -> None:
        if Tombstone.objects.using(self.using).with_id(run_id).exists():
            raise RunConflictError(run_id, "it was deleted by retention, and its id is not used again")

    # --- the next events ----------------------------------------------------------------------------------------------

    def append(self, row: RunRow, events: Sequence[NewEvent], *, change: RunChange, epoch: int | None = None) -> RunRow:
        """Append after ``row.last_sequence``: one compare-and-swap on the run's row decides, and nothing is read."""
        connection = self.connection
        columns, values = columns_of(change, self.dialect)
        after, fenced = row.last_sequence, epoch is not None
        last = after + len(events)
        params = [last, *values, row.key, after, *((epoch,) if fenced else ())]
        ends = row.steps_out > 0 and any(new.event.terminal for new in events)
        plain = not ends and not leaves_rows(events, active_hooks=row.active_hooks) and len(events) <= _CHUNK

        def write_in_one() -> bool:
            sql = statements.append_in_one(columns, len(events), fenced=fenced)
            with cursor_of(connection) as cursor:
                cursor.execute(sql, [*params, *self._event_values(connection, events, after=after)])
                return bool(cursor.rowcount)

        def write_events(cursor: CursorWrapper) -> bool:
            cursor.execute(statements.move(columns, fenced=fenced), params)
            if not cursor.rowcount:
                return False
            self._insert_events(cursor, row.key, events, after=after)
            return True

        def write_plainly() -> bool:
            with Begun(connection) as cursor:
                return write_events(cursor)

        def write() -> bool:
            with self.atomic(savepoint=not plain), cursor_of(connection) as cursor:
                written = write_events(cursor)
                if written and not plain:
                    self._project(row.key, row.run_id, events, after=after, active_hooks=row.active_hooks)
                if written and ends:
                    cursor.execute(statements.FORGET_STEPS, (row.key,))
                return written

        act = write
        if plain and self.dialect.has_writing_cte:
            act = write_in_one
        elif plain and connection.vendor == "sqlite" and not connection.in_atomic_block and connection.get_autocommit():
            act = write_plainly
        if not self._with_token_owner(act, events):
            self._explain_refusal(row, events, epoch=epoch)
        return moved(row, change, last)

    def _explain_refusal(self, row: RunRow, events: Sequence[NewEvent], *, epoch: int | None) -> None:
        """Say why the row did not move; return if these very events are there: an earlier try had committed."""
        sql = statements.select_refusal(self.dialect, suffix=self.latest)
        found = self.fetch(sql, (row.last_sequence + 1, row.key))
        if not found:
            self._refuse_deleted(row.run_id)
            raise RunNotFoundError(row.run_id)
        last_sequence, lease_epoch, expires_at, event_id = found[0]
        if event_id is not None and UUID(str(event_id)) == events[0].event_id:
            return
        if epoch is not None and (lease_epoch != epoch or expires_at is None):
            raise LeaseLostError(row.run_id, epoch)
        raise EventConflictError(row.run_id, expected=row.last_sequence, actual=last_sequence)

    # --- shared -------------------------------------------------------------------------------------------------------

    def _event_values(
        self, connection: BaseDatabaseWrapper, events: Sequence[NewEvent], *, after: int, key: int | None = None
    ) -> list[Any]:
        native = self.dialect.vendor == "mysql" and connection.features.has_native_uuid_field
        return values_of(events, after=after, dialect=self.dialect, native_uuid=native, key=key)

    def _insert_events(self, cursor: CursorWrapper, key: int, events: Sequence[NewEvent], *, after: int) -> None:
        for start in range(0, len(events), _CHUNK):
            chunk = events[start : start + _CHUNK]
            values = self._event_values(cursor.db, chunk, after=after + start, key=key)
            sizes = [
                len(payload) + len(meta)
                for payload, meta in zip(values[_PAYLOAD::_WIDTH], values[_META::_WIDTH], strict=True)
            ]
            for part in chunks.slices(sizes, most_rows=_CHUNK):
                rows = values[part.start * _WIDTH : part.stop * _WIDTH]
                cursor.execute(statements.insert_events(part.stop - part.start), rows)

    def _project(self, key: int, run_id: str, events: Sequence[NewEvent], *, after: int, active_hooks: int) -> None:
        projector = Projector(key, run_id, using=self.using, check_target=self._check_target)
        projector.apply_all(events, after=after, active_hooks=active_hooks)

    def _check_target(self, run_id: str) -> None:
        """The run that a link leads to must be there, and stays until this transaction ends."""
        sql = f"SELECT 1 FROM {statements.RUN} WHERE run_key = %s{self.dialect.for_share}"
        if not self.fetch(sql, (text_key(run_id),)):
            self._refuse_deleted(run_id)
            raise RunNotFoundError(run_id)

    def _with_token_owner(self, write: Callable[[], T], events: Sequence[NewEvent]) -> T:
        """Run a write; when an active hook elsewhere has one of its tokens, say whose it is."""
        tokens = new_tokens(events)
        for attempt in range(1, _TOKEN_ATTEMPTS + 1):
            try:
                return self.attempt(write)
            except IntegrityError as error:
                self._refuse_taken(tokens)
                # No owner any more: it has let go of the token just now, so try again.
                if not tokens or attempt == _TOKEN_ATTEMPTS or self.connection.in_atomic_block:
                    raise StoreError(f"The database refused: {error}") from error
        raise AssertionError("unreachable")

    def _refuse_taken(self, tokens: Sequence[str]) -> None:
        if not tokens:
            return
        hook, run = Hook._meta.db_table, statements.RUN
        marks = ", ".join(["%s"] * len(tokens))
        owners = self.fetch(
            f"SELECT r.run_id, h.hook_id FROM {hook} h JOIN {run} r ON r.id = h.run_id "
            f"WHERE h.active_token_digest IN ({marks}){self.latest}",
            tokens,
        )
        if owners:
            raise HookTokenConflictError(owner_run_id=owners[0][0], owner_hook_id=owners[0][1]) from None


def _text(value: str, *, what: str) -> str:
    """Text for a column of 200 characters, refused alike where the database would cut it and where it would not."""
    text = clean_text(value)
    if len(text) > 200:
        raise InvalidTransitionError(f"{what} has {len(text)} characters, more than 200")
    return text


def _label_rows(key: int, run: NewRun) -> list[RunLabel]:
    return [
        RunLabel(
            run_id=key, name=name, name_key=text_key(name), value=clean_text(value), label_key=text_key(name, value)
        )
        for name, value in run.labels.items()
    ]
