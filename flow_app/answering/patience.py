"""Validators whose work is bounded by the answer's size, and not by its square or by how much of it is wrong."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import lru_cache
from importlib import import_module
from itertools import islice
from typing import Any

#: Errors that are looked for in one place. ``anyOf`` keeps all that it is told of each of its branches.
IN_ONE_PLACE = 20


@lru_cache(maxsize=16)
def patient(kind: type[Any]) -> type[Any]:
    """The same validator of JSON Schema, which accepts and refuses the same, and stops early to say why."""
    made: Any = import_module("jsonschema.validators").extend(kind, {"uniqueItems": _unique_items})
    descend = made.descend

    def descend_a_little(self: Any, *args: Any, **kwargs: Any) -> Iterator[Any]:
        return islice(descend(self, *args, **kwargs), IN_ONE_PLACE)

    made.descend = descend_a_little
    return made  # type: ignore[no-any-return]


def _unique_items(validator: Any, wanted: Any, instance: Any, schema: Any) -> Iterator[Any]:
    """The library compares each object with each other one."""
    if wanted and validator.is_type(instance, "array") and len({_same(item) for item in instance}) < len(instance):
        yield import_module("jsonschema.exceptions").ValidationError("has non-unique elements")


def _same(value: Any) -> str:
    """A text that two values share if JSON Schema calls them equal: 1 and 1.0 are, 1 and true are not."""
    return json.dumps(_normal(value), sort_keys=True)


def _normal(value: Any) -> Any:
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, dict):
        return {name: _normal(item) for name, item in value.items()}
    return [_normal(item) for item in value] if isinstance(value, list) else value
