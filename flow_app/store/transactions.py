"""Transactions: the engine's own, the caller's, and what is repeated when the database gives up on one."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from functools import lru_cache
from typing import Any, Self, TypeVar

from django.db import connections, transaction
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.utils import CursorWrapper
from django.db.utils import DatabaseError, Error, IntegrityError

from flow_app.core.ports import Clock
from flow_app.errors import StoreError
from flow_app.models.fields import as_utc
from flow_app.store.after_commit import AfterCommit
from flow_app.store.clock import clock_for
from flow_app.store.dialects import Dialect, dialect_of

T = TypeVar("T")

_ATTEMPTS = 6
_FIRST_PAUSE = 0.005


class OwnAtomic(transaction.Atomic):
    """A block that the store opened, so that it is told from its caller's."""


def cursor_of(connection: BaseDatabaseWrapper) -> CursorWrapper:
    """A cursor for the store's own SQL.

    On PostgreSQL the values travel beside the statement, and it is prepared if the project's OPTIONS give a
    ``prepare_threshold``. Django's own cursors write the values into the text, which costs most of a short append; on
    SQLite they rewrite the text each time.
    """
    kind = _cursor_type(connection.vendor)
    if kind is None:
        return connection.cursor()
    connection.close_if_health_check_failed()
    connection.ensure_connection()
    wrapped: CursorWrapper = connection._prepare_cursor(kind(connection.connection))  # type: ignore[attr-defined]
    return wrapped


class Begun:
    """A transaction of the store's own on SQLite, begun and ended by statements on the one cursor that it yields.

    It does for a connection in autocommit what Django's block does, and costs a third: no cursor, no savepoint and no
    hooks of its own. Nobody else's transaction may be open.
    """

    def __init__(self, connection: BaseDatabaseWrapper) -> None:
        self._connection = connection

    def __enter__(self) -> CursorWrapper:
        self._cursor = cursor_of(self._connection)
        self._cursor.execute(f"BEGIN {getattr(self._connection, 'transaction_mode', None) or ''}")
        return self._cursor

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        try:
            if kind is None:
                self._cursor.execute("COMMIT")
        except BaseException:
            self._roll_back()
            raise
        if kind is not None:
            self._roll_back()
        self._cursor.close()

    def _roll_back(self) -> None:
        try:
            self._connection.connection.rollback()  # beside the cursor, on which whatever failed may fail again
        except sqlite3.Error:
            self._connection.close()


class SqliteCursor(sqlite3.Cursor):
    """Takes the store's SQL, in which every ``%s`` stands for a value."""

    def execute(self, sql: str, parameters: Any = (), /) -> Self:
        return super().execute(_with_qmarks(sql), parameters)


@lru_cache(maxsize=1024)
def _with_qmarks(sql: str) -> str:
    return sql.replace("%s", "?")


@lru_cache
def _cursor_type(vendor: str) -> Any:
    """The driver's cursor for the store's statements; None for Django's own."""
    if vendor == "sqlite":
        return SqliteCursor
    if vendor == "postgresql":
        from django.db.backends.postgresql import base

        return getattr(base, "ServerBindingCursor", None)  # psycopg 3 has it
    return None


class Transactions:
    """What everything in the store shares: one database alias, its clock, its transactions."""

    def __init__(self, using: str = "default", *, clock: Clock | None = None) -> None:
        self.using = using
        self._after_commit = AfterCommit()
        self.clock: Clock = clock_for(using) if clock is None else clock
        self.dialect: Dialect = dialect_of(connections[using])

    @property
    def connection(self) -> BaseDatabaseWrapper:
        """The connection of this thread."""
        return connections[self.using]

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """A transaction that joins the caller's, if there is one: then what fails in here is undone alone."""
        with self._after_commit.block(), self.atomic():
            yield

    def transact(self, act: Callable[[], T]) -> T:
        """Run ``act`` in a transaction, again when the database gave up on it; inside the caller's once."""

        def once() -> T:
            with self.transaction():
                return act()

        with self._after_commit.block():  # outside of what is repeated: by then all is committed
            return self.attempt(once)

    def in_caller_transaction(self) -> bool:
        """Is a transaction open that the engine did not open? The one around a Django TestCase does not count."""
        blocks: list[Any] = self.connection.atomic_blocks
        return any(not isinstance(block, OwnAtomic) and not block._from_testcase for block in blocks)

    def threads_see_writes(self) -> bool:
        """Do other threads see what this one has written? Not in a transaction, nor in SQLite's memory."""
        connection: Any = self.connection
        in_memory = connection.vendor == "sqlite" and connection.is_in_memory_db()
        return not connection.in_atomic_block and not in_memory

    def on_commit(self, act: Callable[[], None]) -> None:
        """Call ``act`` once the transaction commits, the caller's or the store's own; at once when there is none.

        What ``act`` raises is logged when the transaction is the caller's.
        """
        if self.in_caller_transaction():
            transaction.on_commit(act, using=self.using, robust=True)
        else:
            self._after_commit.call(act)

    # --- for the store itself -----------------------------------------------------------------------------------------

    def atomic(self, *, savepoint: bool = True) -> OwnAtomic:
        return OwnAtomic(self.using, savepoint, False)

    def execute(self, sql: str, params: Any = ()) -> int:
        """Run one statement; the number of rows it touched."""
        with cursor_of(self.connection) as cursor:
            cursor.execute(sql, params)
            return int(cursor.rowcount)

    def fetch(self, sql: str, params: Any = ()) -> list[tuple[Any, ...]]:
        with cursor_of(self.connection) as cursor:
            cursor.execute(sql, params)
            return list(cursor.fetchall())

    def first_instant(self, sql: str) -> datetime | None:
        """The one instant that a query selects, if there is one."""
        rows = self.fetch(sql)
        return as_utc(rows[0][0]) if rows else None

    @property
    def latest(self) -> str:
        """The suffix with which a SELECT sees what others committed since the transaction began."""
        return self.dialect.latest if self.connection.in_atomic_block else ""

    def attempt(self, act: Callable[[], T]) -> T:
        """Run a whole transaction, again when the database gave up on it.

        Inside a transaction of the caller there is nothing to repeat: errors go to whom it belongs.
        """
        connection = self.connection
        if connection.in_atomic_block:
            return act()
        pause = _FIRST_PAUSE
        for attempt in range(_ATTEMPTS):
            try:
                return act()
            except IntegrityError:
                raise
            except Error as error:
                transient = isinstance(error, DatabaseError) and self.dialect.is_transient(error)
                if not transient or attempt == _ATTEMPTS - 1:
                    connection.close_if_unusable_or_obsolete()
                    raise StoreError(f"The database refused: {error}") from error
                time.sleep(pause)
                pause *= 2
        raise AssertionError("unreachable")
