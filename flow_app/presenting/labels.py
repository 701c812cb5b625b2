"""Labels, of which anybody may give any number: pages show the first, and say how many more there are."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice
from typing import TypeVar

from django.utils.translation import ngettext

T = TypeVar("T")


def first_labels(labels: Mapping[str, T], *, most: int) -> dict[str, T]:
    return dict(islice(labels.items(), most))


def how_many_more(labels: Mapping[str, T], *, most: int) -> str:
    """In words; empty where the first are all."""
    count = len(labels) - most
    if count <= 0:
        return ""
    return ngettext("and one more label", "and %(count)d more labels", count) % {"count": count}
