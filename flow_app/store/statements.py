# ruff: noqa: S608 - the SQL is put together from names in this package; every value is a parameter
"""The SQL of the hot path, by hand: one text per database and shape, built once."""

from __future__ import annotations

from functools import lru_cache

from flow_app.core.events import DATED
from flow_app.core.ports import WakeReason
from flow_app.models import Event, Run, StepExecution, Tombstone
from flow_app.models.run import OPEN
from flow_app.store.dialects import Dialect
from flow_app.store.records import EVENT_COLUMNS
from flow_app.store.rows import run_columns

RUN = Run._meta.db_table
EVENT = Event._meta.db_table
STEP = StepExecution._meta.db_table
TOMBSTONE = Tombstone._meta.db_table

#: Parameter: the run's key.
FORGET_STEPS = f"DELETE FROM {STEP} WHERE run_id = %s"

_EVENT_COLUMNS = ", ".join(EVENT_COLUMNS)
_EVENT_ROW = "(" + ", ".join(["%s"] * len(EVENT_COLUMNS)) + ")"
#: What PostgreSQL calls the types of the columns of an event.
EVENT_TYPES = ("bigint", "uuid", "text", "text", "text", "text", "timestamptz")
# It takes the types of a VALUES list from its first row.
_TYPED_ROW = "(" + ", ".join(f"%s::{name}" for name in EVENT_TYPES) + ")"
_RUN_ROW = "(%s, " + ", ".join(["%s"] * len(EVENT_COLUMNS)) + ")"
_DATED = ", ".join(f"'{event.type}'" for event in DATED)
_OPEN = "status IN (" + ", ".join(f"'{status}'" for status in OPEN) + ")"
_LEASED = " AND lease_epoch = %s AND lease_expires_at IS NOT NULL"
_FENCE = _LEASED + " AND paused_at IS NULL"


@lru_cache(maxsize=1024)
def move(columns: tuple[str, ...], *, fenced: bool) -> str:
    """Compare-and-swap of the run's row. Parameters: last sequence, columns, key, expected sequence [, epoch]."""
    return f"UPDATE {RUN} SET {_assignments(('last_sequence', *columns))} WHERE id = %s AND last_sequence = %s" + (
        _FENCE if fenced else ""
    )


@lru_cache(maxsize=1024)
def append_in_one(columns: tuple[str, ...], count: int, *, fenced: bool) -> str:
    """The same and the events in one statement, for PostgreSQL. Parameters: those of both, in this order."""
    return f"WITH moved AS ({move(columns, fenced=fenced)} RETURNING id) {_insert_for('moved', count)}"


@lru_cache(maxsize=128)
def insert_events(count: int) -> str:
    """Parameters: for each event the run's key and the event's values."""
    return f"INSERT INTO {EVENT} (run_id, {_EVENT_COLUMNS}) VALUES " + ", ".join([_RUN_ROW] * count)


def _literals() -> dict[str, str]:
    """The columns that a new run may leave unsaid, with their defaults in SQL; the database has few of its own."""
    fields = (field for field in Run._meta.concrete_fields if not field.primary_key)
    defaults = {str(field.column): field.get_default() if field.has_default() else None for field in fields}
    return {
        name: "NULL" if value is None else f"'{value}'" if isinstance(value, str) else str(value)
        for name, value in defaults.items()
    }


@lru_cache(maxsize=64)
def insert_run(dialect: Dialect, columns: tuple[str, ...]) -> str:
    """Insert a run unless its id is taken or was deleted. Parameters: columns, key of the id.

    Defaults are literals: psycopg keeps no statement of more than 50 parameters in its cache.
    """
    unsaid = {name: literal for name, literal in _literals().items() if name not in columns}
    values = ", ".join([*["%s"] * len(columns), *unsaid.values()])
    return (
        f"{dialect.insert_new} {RUN} ({', '.join((*columns, *unsaid))}) SELECT {values}"
        f"{dialect.from_nothing} WHERE NOT EXISTS (SELECT 1 FROM {TOMBSTONE} WHERE run_key = %s)"
        f"{dialect.on_conflict_skip}" + (" RETURNING id" if dialect.has_writing_cte else "")
    )


@lru_cache(maxsize=128)
def create_in_one(dialect: Dialect, columns: tuple[str, ...], count: int) -> str:
    """The same and the events in one statement, for PostgreSQL."""
    return f"WITH made AS ({insert_run(dialect, columns)}) {_insert_for('made', count)} RETURNING run_id"


@lru_cache(maxsize=64)
def park(columns: tuple[str, ...], *, paused: bool) -> str:
    """Parameters: columns, key, expected sequence, epoch."""
    return (
        f"UPDATE {RUN} SET {_assignments(columns)} WHERE id = %s AND last_sequence = %s AND lease_epoch = %s "
        f"AND paused_at IS {'NOT NULL' if paused else 'NULL'}"
    )


@lru_cache(maxsize=16)
def claim(dialect: Dialect, now: str, until: str, *, unpinned_only: bool) -> str:
    """Parameters: until, until, key of the id, now. MariaDB assigns from left to right: the expiry comes last.

    A lease that is taken over waits for the disk: a body may run under it before anything else is committed.
    """
    return (
        f"UPDATE {RUN} SET lease_epoch = {dialect.next_epoch}, "
        "lost_leases = CASE WHEN lease_expires_at IS NULL THEN lost_leases ELSE lost_leases + 1 END, "
        f"dispatches = 0, wake_reason = '{WakeReason.DRIVING.value}', wake_at = {until}, lease_expires_at = {until} "
        f"WHERE run_key = %s AND {_OPEN} AND paused_at IS NULL "
        f"AND (lease_expires_at IS NULL OR lease_expires_at <= {now}) "
        f"AND CASE WHEN lease_expires_at IS NULL THEN {dialect.unhurried} ELSE 1 = 1 END"
    ) + (" AND build IS NULL" if unpinned_only else "")


@lru_cache(maxsize=16)
def returning_claimed(dialect: Dialect, claim: str) -> str:
    return f"{claim} RETURNING {run_columns(dialect)}, {dialect.utc_now}"


@lru_cache(maxsize=16)
def renew(until: str) -> str:
    """Parameters: until, until, key, epoch. The lease of a paused run is kept while a body runs, without a wake-up."""
    wake_at = f"CASE WHEN paused_at IS NULL THEN {until} END"
    return f"UPDATE {RUN} SET wake_at = {wake_at}, lease_expires_at = {until} WHERE id = %s" + _LEASED


@lru_cache(maxsize=16)
def select_due(now: str, *, locking: str) -> str:
    """Parameters: now, now, limit."""
    return (
        "SELECT id, run_id, build, wake_reason, dispatches, lost_leases, "
        f"CASE WHEN lease_expires_at > {now} THEN 1 ELSE 0 END FROM {RUN} "
        f"WHERE wake_at <= {now} ORDER BY wake_at, id LIMIT %s{locking}"
    )


@lru_cache(maxsize=16)
def select_first_wake(dialect: Dialect, table: str) -> str:
    """Asked many times a second: not MIN, for which MariaDB reads the whole table unless it is all that is asked."""
    return f"SELECT {dialect.column('wake_at')} FROM {table} WHERE wake_at IS NOT NULL ORDER BY wake_at LIMIT 1"


@lru_cache(maxsize=16)
def select_due_builds(now: str) -> str:
    """Parameters: now, now. A step that names its queue needs no route."""
    return (
        f"SELECT build FROM {RUN} WHERE wake_at <= {now} UNION SELECT r.build FROM {STEP} s "
        f"JOIN {RUN} r ON r.id = s.run_id WHERE s.wake_at <= {now} AND s.queue IS NULL"
    )


@lru_cache(maxsize=16)
def select_run(dialect: Dialect, *, suffix: str = "") -> str:
    """Parameter: key of the id."""
    return f"SELECT {run_columns(dialect)} FROM {RUN} WHERE run_key = %s{suffix}"


@lru_cache(maxsize=16)
def select_claimed(dialect: Dialect) -> str:
    return f"SELECT {run_columns(dialect)}, {dialect.utc_now} FROM {RUN} WHERE run_key = %s"


@lru_cache(maxsize=16)
def select_refusal(dialect: Dialect, *, suffix: str) -> str:
    """Why a move was refused. Parameters: the sequence of the first event, the run's key."""
    return (
        f"SELECT r.last_sequence, r.lease_epoch, r.lease_expires_at, e.event_id FROM {RUN} r "
        f"LEFT JOIN {EVENT} e ON e.run_id = r.id AND e.sequence = %s WHERE r.id = %s{suffix}"
    )


@lru_cache(maxsize=16)
def select_events(dialect: Dialect, *, whole: bool, typed: bool = False, suffix: str = "") -> str:
    """Parameters: the run's key, the sequence after which to begin [, the type]."""
    recorded_at = dialect.column("recorded_at")
    return (
        "SELECT sequence, type, payload, digest, "
        + (f"{recorded_at}, event_id, meta" if whole else f"CASE WHEN type IN ({_DATED}) THEN {recorded_at} END")
        + f" FROM {EVENT} WHERE run_id = %s AND sequence > %s"
        + (" AND type = %s" if typed else "")
        + f" ORDER BY sequence{suffix}"
    )


def _assignments(columns: tuple[str, ...]) -> str:
    return ", ".join(f"{column} = %s" for column in columns)


def _insert_for(source: str, count: int) -> str:
    rows = ", ".join([_TYPED_ROW, *[_EVENT_ROW] * (count - 1)])
    return (
        f"INSERT INTO {EVENT} (run_id, {_EVENT_COLUMNS}) SELECT {source}.id, v.* FROM {source} "
        f"CROSS JOIN (VALUES {rows}) AS v ({_EVENT_COLUMNS})"
    )
