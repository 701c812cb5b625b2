"""What a connection really sends to its database, BEGIN and COMMIT included: asked of the driver, not of Django."""

from __future__ import annotations

import math
import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
from django.db.backends.base.base import BaseDatabaseWrapper

from flow_app.engine import drive


@dataclass
class Wire:
    """Statements by their first word, in order; MariaDB tells their number only, so there the order is alphabetical."""

    statements: list[str] = field(default_factory=list)

    def count(self, *verbs: str) -> int:
        return sum(statement in verbs for statement in self.statements)

    @property
    def commits(self) -> int:
        """Transactions that wrote. A writing statement outside of a transaction is one of its own."""
        commits, wrote, inside = 0, False, False
        for statement in self.statements:
            match statement:
                case "BEGIN":
                    inside, wrote = True, False
                case "COMMIT":
                    inside, commits = False, commits + wrote
                case "INSERT" | "UPDATE" | "DELETE":
                    wrote, commits = True, commits + (not inside)
        return commits


@contextmanager
def listening(connection: BaseDatabaseWrapper) -> Iterator[Wire]:
    """Listen to what goes over a connection during the block; the Wire is filled at its end.

    Meanwhile no workflow counts as slow, whatever else the machine does: what is counted is that of a quick one.
    """
    connection.ensure_connection()
    listen = {"postgresql": _postgresql, "sqlite": _sqlite, "mysql": _mariadb}[connection.vendor]
    with pytest.MonkeyPatch.context() as patch, listen(connection.connection) as wire:
        patch.setattr(drive, "_SLOW", math.inf)
        yield wire


@contextmanager
def _postgresql(raw: Any) -> Iterator[Wire]:
    """libpq's own trace of the protocol: one Query or Execute message for each statement, and its command tag."""
    from psycopg import pq

    wire = Wire()
    with tempfile.TemporaryFile() as file:
        raw.pgconn.trace(file.fileno())
        raw.pgconn.set_trace_flags(pq.Trace.SUPPRESS_TIMESTAMPS)
        try:
            yield wire
        finally:
            raw.pgconn.untrace()
        file.seek(0)
        trace = file.read().decode(errors="replace")
    sent = re.findall(r"^F\t\d+\t(?:Query|Execute)\b", trace, re.MULTILINE)
    wire.statements += re.findall(r'^B\t\d+\tCommandComplete\t "(\w+)', trace, re.MULTILINE)
    assert len(sent) == len(wire.statements)


@contextmanager
def _sqlite(raw: Any) -> Iterator[Wire]:
    wire = Wire()
    raw.set_trace_callback(lambda sql: wire.statements.append(sql.split(None, 1)[0].upper()))
    try:
        yield wire
    finally:
        raw.set_trace_callback(None)


@contextmanager
def _mariadb(raw: Any) -> Iterator[Wire]:
    """The server's counters for this session; SET is what switches autocommit off and on again."""

    def counters() -> dict[str, int]:
        with raw.cursor() as cursor:
            cursor.execute("SHOW SESSION STATUS WHERE Variable_name LIKE 'Com\\_%' OR Variable_name = 'Questions'")
            return {name.upper(): int(count) for name, count in cursor.fetchall()}

    before, wire = counters(), Wire()
    yield wire
    sent = {name: count - before[name] for name, count in counters().items()}
    sent["COM_SHOW_STATUS"] -= 1  # the question itself
    for name, count in sorted(sent.items()):
        if name.startswith("COM_"):
            wire.statements += [name.split("_")[1]] * count  # COM_INSERT and COM_INSERT_SELECT are both an INSERT
    assert len(wire.statements) == sent["QUESTIONS"] - 1
