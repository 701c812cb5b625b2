"""Where the databases differ. All other SQL of the store is the same text on each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.utils import DatabaseError

from flow_app.core.ports import Clock
from flow_app.errors import ConfigurationError
from flow_app.models.fields import to_column


@dataclass(frozen=True, slots=True)
class Moment:
    """An instant in SQL: the database's own time, or a parameter."""

    sql: str
    params: tuple[Any, ...] = ()


@dataclass(frozen=True, slots=True)
class Dialect:
    """One database's way to say things. Instants are stored in UTC on all of them."""

    vendor: str
    #: May one statement insert what another returns?
    has_writing_cte: bool
    now: str
    utc_now: str
    plus_microseconds: str
    insert_new: str
    from_nothing: str
    on_conflict_skip: str
    for_update: str
    for_share: str
    #: What a read inside a transaction needs, to see what others committed since it began.
    latest: str
    #: An expression, always true, in the WHERE of an UPDATE: it spares that commit the wait for the disk. For claims:
    #: what is committed under one takes it along. A crash of the server forgets claims of its last moments, and then
    #: the attempt of a step is given to a second worker while the first, whose outcome will be refused, is still at it.
    unhurried: str
    #: The next epoch of a lease. One that a crash may forget must not be given a second time.
    next_epoch: str

    def instant(self, value: datetime | None) -> datetime | str | None:
        return to_column(value, self.vendor)

    def uuid(self, value: UUID, *, native: bool) -> UUID | str:
        if self.vendor == "postgresql":
            return value
        return str(value) if native else value.hex

    def column(self, name: str) -> str:
        """An instant's column, read as UTC whatever the session's time zone."""
        return f"{name} AT TIME ZONE 'UTC'" if self.vendor == "postgresql" else name

    def moment(self, clock: Clock) -> Moment:
        """Now, by the one clock of the deployment."""
        return Moment(self.now) if clock.in_database else Moment("%s", (self.instant(clock.now()),))

    def after(self, clock: Clock, delay: timedelta) -> Moment:
        """``delay`` from now, by the one clock of the deployment."""
        if clock.in_database:
            return Moment(self.plus_microseconds, (delay // timedelta(microseconds=1),))
        return Moment("%s", (self.instant(clock.now() + delay),))

    def among(self, keys: Sequence[int]) -> tuple[str, tuple[Any, ...]]:
        """A condition on ``id``, and its parameters: one array where the database has them, for a hundred are slow."""
        if self.vendor == "postgresql":
            return "id = ANY(%s)", (list(keys),)
        return f"id IN ({', '.join(['%s'] * len(keys))})", tuple(keys)

    def is_transient(self, error: DatabaseError) -> bool:
        """Did the database give up on a transaction that may succeed when it is repeated?"""
        cause = error.__cause__
        if self.vendor == "postgresql":
            return getattr(cause, "sqlstate", None) in ("40001", "40P01")
        if self.vendor == "mysql":
            return bool(error.args) and error.args[0] in (1020, 1213)
        return "locked" in str(error)


POSTGRESQL = Dialect(
    vendor="postgresql",
    has_writing_cte=True,
    now="STATEMENT_TIMESTAMP()",
    utc_now="STATEMENT_TIMESTAMP() AT TIME ZONE 'UTC'",
    plus_microseconds="STATEMENT_TIMESTAMP() + %s * INTERVAL '1 microsecond'",
    insert_new="INSERT INTO",
    from_nothing="",
    on_conflict_skip=" ON CONFLICT (run_key) DO NOTHING",
    for_update=" FOR UPDATE",
    for_share=" FOR SHARE",
    latest="",
    unhurried="set_config('synchronous_commit', 'off', true) = 'off'",
    next_epoch="GREATEST(lease_epoch + 1, CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000000 AS bigint))",
)
SQLITE = Dialect(
    vendor="sqlite",
    has_writing_cte=False,
    now="CURRENT_TIMESTAMP",
    utc_now="CURRENT_TIMESTAMP",
    plus_microseconds="%s",
    insert_new="INSERT OR IGNORE INTO",
    from_nothing="",
    on_conflict_skip="",
    for_update="",  # an IMMEDIATE transaction is the only writer
    for_share="",
    latest="",
    unhurried="1 = 1",
    next_epoch="lease_epoch + 1",
)
MARIADB = Dialect(
    vendor="mysql",
    has_writing_cte=False,
    now="UTC_TIMESTAMP(6)",
    utc_now="UTC_TIMESTAMP(6)",
    plus_microseconds="UTC_TIMESTAMP(6) + INTERVAL %s MICROSECOND",
    insert_new="INSERT IGNORE INTO",
    from_nothing=" FROM DUAL",
    on_conflict_skip="",
    for_update=" FOR UPDATE",
    for_share=" LOCK IN SHARE MODE",
    latest=" LOCK IN SHARE MODE",
    unhurried="1 = 1",
    next_epoch="lease_epoch + 1",
)
_DIALECTS = {dialect.vendor: dialect for dialect in (POSTGRESQL, SQLITE, MARIADB)}


def dialect_of(connection: BaseDatabaseWrapper) -> Dialect:
    dialect = _DIALECTS.get(connection.vendor)
    if dialect is None:
        raise ConfigurationError(
            f"flow_app keeps its log on PostgreSQL, SQLite, MariaDB or MySQL, not on {connection.vendor}."
        )
    return dialect
