"""How many rows go into one INSERT: SQLite counts parameters, and MariaDB the bytes of a statement."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.db.models import Model, QuerySet

#: Characters of payload and meta. MariaDB takes 16 MiB (max_allowed_packet), and quoting can double them.
MOST_TEXT = 2 * 1024 * 1024
_MOST_ROWS = 50


def slices(sizes: Sequence[int], *, most_rows: int) -> list[slice]:
    """Cut rows, given the size of each one's texts, into what one statement may carry; at least one row each."""
    if len(sizes) <= most_rows and sum(sizes) <= MOST_TEXT:
        return [slice(0, len(sizes))]
    parts, start, text = [], 0, 0
    for index, size in enumerate(sizes):
        if index > start and (index - start == most_rows or text + size > MOST_TEXT):
            parts.append(slice(start, index))
            start, text = index, 0
        text += size
    return [*parts, slice(start, len(sizes))]


def insert(rows: QuerySet[Any], objects: Sequence[Model], *, payload: str, ignore_conflicts: bool = False) -> None:
    """Insert objects whose size is that of one text column, ``payload``."""
    for part in slices([len(getattr(item, payload)) for item in objects], most_rows=_MOST_ROWS):
        rows.bulk_create(objects[part], ignore_conflicts=ignore_conflicts)
