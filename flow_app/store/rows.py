"""The run's row: its columns, as they are read and as a change writes them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from operator import attrgetter
from typing import Any, cast

from flow_app.core.payload import clean_text
from flow_app.core.ports import RunChange, RunRow
from flow_app.core.snapshot import RunStatus
from flow_app.models.fields import as_utc
from flow_app.store.dialects import Dialect

_FIELDS = tuple(field.name for field in dataclasses.fields(RunRow))
#: The columns of a RunRow, in its order.
RUN_FIELDS = ("id", *_FIELDS[1:])
_AT = {name: index for index, name in enumerate(_FIELDS)}
_values_of = attrgetter(*_FIELDS)
_INSTANTS = frozenset({"timer_at", "wake_at", "lease_expires_at", "blocked_since", "paused_at", "finished_at"})
_LIMITS = {
    "error": 100_000,
    "blocked_code": 100,
    "blocked_text": 10_000,
    "blocked_traceback": 100_000,
    "progress_message": 10_000,
    "paused_by": 200,
    "wake_reason": 20,
}
_COUNTS = frozenset({"progress_completed", "progress_total"})
_MAX_BIGINT = 2**63 - 1


@lru_cache
def run_columns(dialect: Dialect, *, table: str = "") -> str:
    """The select list that :func:`read_run` reads; ``table`` is put before each name, as ``r.``."""
    return ", ".join(dialect.column(table + name) if name in _INSTANTS else table + name for name in RUN_FIELDS)


def read_run(values: Sequence[Any]) -> RunRow:
    row = dict(zip(_FIELDS, values, strict=False))
    row["status"] = RunStatus(row["status"])
    for name in _INSTANTS & row.keys():
        row[name] = as_utc(row[name])
    return RunRow(**row)


def moved(row: RunRow, change: RunChange, last_sequence: int) -> RunRow:
    """The row as a change leaves it."""
    values = list(_values_of(row))
    values[_AT["last_sequence"]] = last_sequence
    for name, value in _cleaned(change).items():
        if name in _AT:
            values[_AT[name]] = value
    return RunRow(*values)


def columns_of(change: RunChange, dialect: Dialect) -> tuple[tuple[str, ...], list[Any]]:
    """The columns that a change sets, and their values as the database driver takes them."""
    values = _cleaned(change)
    return tuple(values), [dialect.instant(value) if name in _INSTANTS else value for name, value in values.items()]


def _cleaned(change: RunChange) -> dict[str, Any]:
    values = cast(Mapping[str, Any], change)
    return {name: _CLEAN[name](value) if name in _CLEAN else value for name, value in values.items()}


def _text(limit: int) -> Callable[[str], str]:
    return lambda value: clean_text(str(value), limit=limit)


def _count(value: int | None) -> int | None:
    """A column for lists and progress bars: the log holds the exact number, however large."""
    return None if value is None else min(value, _MAX_BIGINT)


_CLEAN: dict[str, Callable[[Any], Any]] = {
    **{name: _text(limit) for name, limit in _LIMITS.items()},
    **dict.fromkeys(_COUNTS, _count),
    "outcome": str,
}
