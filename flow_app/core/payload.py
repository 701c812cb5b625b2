"""Canonical payloads: one JSON text per value, the same on every database and on every replay.

A value is JSON plus a few rich types, each written as an object with a single ``$`` key::

    Decimal("1.10")  ->  {"$decimal": "1.10"}

User data of that very shape gets one more ``$`` on its key, so it comes back as the plain data it was. Two values are
equal when their digests are: ``1``, ``1.0`` and ``True`` differ, key order does not count.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal, InvalidOperation
from typing import Any, TypeAlias
from uuid import UUID

from flow_app.errors import PayloadError

Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"

_MICROSECOND = timedelta(microseconds=1)
_MAX_INT_DIGITS = 4300  # Python refuses to parse longer integers back from text
_MAX_INT = 10**_MAX_INT_DIGITS
_SURROGATE = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True, slots=True)
class Limits:
    """How large a single payload may be: bytes of canonical text, and levels of nesting."""

    max_bytes: int = 1024 * 1024
    max_depth: int = 64


DEFAULT_LIMITS = Limits()

#: Imported payloads were accepted by another engine: only nesting is limited, which reading them back needs.
IMPORT_LIMITS = Limits(max_bytes=2**40, max_depth=256)


def dumps(tree: Any) -> str:
    """Canonical text of a JSON tree: sorted keys, no spaces, ASCII only."""
    return _encoder(tree)


_encoder = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False).encode


class Payload:
    """An immutable stored value. ``value`` decodes it afresh, so nobody can change what was recorded."""

    __slots__ = ("_text", "tree")

    tree: Json
    _text: str | None

    def __init__(self, tree: Json) -> None:
        self.tree = tree
        self._text = None

    @classmethod
    def of(cls, value: object, *, what: str = "value", limits: Limits = DEFAULT_LIMITS) -> Payload:
        """Encode a Python value.

        Raises PayloadError, naming ``what`` and the path inside it, when the value is not JSON or one of the rich
        types, or is larger or deeper than ``limits``.
        """
        if isinstance(value, Payload):
            value.check_size(what=what, limits=limits)
            return value
        payload = cls(_encode(value, what, limits.max_depth))
        payload.check_size(what=what, limits=limits)
        return payload

    def check_size(self, *, what: str, limits: Limits) -> None:
        if len(self.text) > limits.max_bytes:
            raise PayloadError(
                f"takes {len(self.text)} bytes, more than the {limits.max_bytes} of FLOW_APP['MAX_PAYLOAD']", what=what
            )

    @property
    def text(self) -> str:
        """The canonical text."""
        if self._text is None:
            self._text = dumps(self.tree)
        return self._text

    @property
    def digest(self) -> str:
        """SHA-256 of the canonical text, in hex."""
        return hashlib.sha256(self.text.encode("ascii")).hexdigest()

    @property
    def value(self) -> Any:
        """The Python value, decoded afresh on every read."""
        return decode(self.tree)

    @property
    def plain(self) -> Any:
        """Plain JSON for the outside world: rich types become strings, escapes vanish."""
        return _plain(self.tree)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Payload):
            return NotImplemented
        return self.text == other.text

    def __hash__(self) -> int:
        return hash(self.text)

    def __repr__(self) -> str:
        text = self.text
        return f"Payload({text if len(text) <= 80 else text[:77] + '...'})"


NULL = Payload(None)


def clean_text(text: str, *, limit: int | None = None) -> str:
    """Free text that every database takes: NUL and lone surrogates are escaped, what is over ``limit`` is cut."""
    if "\x00" in text or _SURROGATE.search(text):
        text = text.replace("\x00", "\\x00").encode("utf-8", "backslashreplace").decode("utf-8")
    if limit is not None and len(text) > limit:
        text = text[: limit - 1] + "…"
    return text


def one_line(text: str, *, limit: int | None = None) -> str:
    """The same for a log or a terminal: what would break its line or steer the terminal is escaped, too."""
    if not text.isprintable():
        text = "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)
    return clean_text(text, limit=limit)


# --- encoding -------------------------------------------------------------------------------------------------------


def _encode(value: object, what: str, max_depth: int) -> Json:
    kind = type(value)
    if kind is str or value is None or kind is bool:
        return value if kind is not str else _string(value)  # type: ignore[arg-type, return-value]
    return _Encoder(what, max_depth).encode(value, "$", 0)


class _Encoder:
    """One walk over one value; it knows the containers it is inside of, to refuse a cycle."""

    def __init__(self, what: str, max_depth: int) -> None:
        self.what = what
        self.max_depth = max_depth
        self.inside: set[int] = set()

    def encode(self, value: object, path: str, depth: int) -> Json:
        if value is None or value is True or value is False:
            return value
        if isinstance(value, str):
            return _string(value)
        if isinstance(value, int):
            return self._int(value, path)
        if isinstance(value, float):
            return self._float(value, path)
        if isinstance(value, dict | list | tuple):
            return self._container(value, path, depth)
        for rich in _RICH:
            if isinstance(value, rich.type):
                return {rich.tag: self._rich(rich, value, path)}
        raise self._error(f"is {_a_type(value)}, which is neither JSON nor a supported type", path)

    def _int(self, value: int, path: str) -> int:
        if not -_MAX_INT < value < _MAX_INT:
            raise self._error(f"is an integer of more than {_MAX_INT_DIGITS} digits", path)
        return int.__int__(value)

    def _float(self, value: float, path: str) -> float:
        if not math.isfinite(value):
            raise self._error("is NaN or infinite, which JSON cannot hold", path)
        return float.__float__(value)

    def _rich(self, rich: _Rich, value: Any, path: str) -> Json:
        try:
            return rich.write(value)
        except ValueError as error:
            raise self._error(str(error), path) from None

    def _container(self, value: dict[Any, Any] | list[Any] | tuple[Any, ...], path: str, depth: int) -> Json:
        if id(value) in self.inside:
            raise self._error("contains itself", path)
        if depth >= self.max_depth:
            raise self._error(f"is nested deeper than {self.max_depth} levels (FLOW_APP['MAX_DEPTH'])", path)
        self.inside.add(id(value))
        try:
            if isinstance(value, dict):
                return self._object(value, path, depth + 1)
            return [self.encode(item, f"{path}[{index}]", depth + 1) for index, item in enumerate(value)]
        finally:
            self.inside.discard(id(value))

    def _object(self, value: dict[Any, Any], path: str, depth: int) -> Json:
        tree: dict[str, Json] = {}
        for key, item in value.items():
            if not isinstance(key, str):
                raise self._error(f"has a key that is {_a_type(key)}, but keys must be strings", path)
            text = _string(key)
            if text in tree:
                raise self._error(f"has the key {text!r} twice", path)
            tree[text] = self.encode(item, f"{path}.{text}", depth)
        if len(tree) == 1:
            (only,) = tree
            if only.startswith("$"):
                return {"$" + only: tree[only]}
        return dict(sorted(tree.items()))  # the order of the text, so that the first pass sees what a replay sees

    def _error(self, reason: str, path: str) -> PayloadError:
        return PayloadError(reason, path=clean_text(path, limit=200), what=self.what)


def _string(value: str) -> str:
    """A plain ``str``. Two surrogates that spell one character become it, as JSON readers would make of them."""
    text = str.__str__(value) if type(value) is not str else value
    if _SURROGATE.search(text):
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
    return text


def _a_type(value: object) -> str:
    kind = type(value)
    return with_article(
        kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    )


def with_article(name: str) -> str:
    return f"{'an' if name[0] in 'aeiouAEIOU' else 'a'} {name}"


# --- rich types -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Rich:
    tag: str
    type: type
    write: Callable[[Any], Json]
    read: Callable[[Any], Any]


def _write_decimal(value: Decimal) -> str:
    if not value.is_finite():
        raise ValueError("is a Decimal that is NaN or infinite")
    return str(value)


def _write_datetime(value: datetime) -> str:
    if value.utcoffset() is None:
        raise ValueError("is a naive datetime; give it a time zone")
    return datetime.isoformat(value)


def _write_time(value: time) -> str:
    if value.tzinfo is not None and value.utcoffset() is None:
        raise ValueError("is a time in a zone whose offset depends on the date; use a datetime")
    return time.isoformat(value)


def _write_timedelta(value: timedelta) -> int:
    return value // _MICROSECOND


def _read_timedelta(value: int) -> timedelta:
    return timedelta(microseconds=value)


def _write_bytes(value: bytes) -> str:
    return base64.b64encode(value).decode("ascii")


def _read_bytes(value: str) -> bytes:
    return base64.b64decode(value, validate=True)


_RICH = (  # datetime before date: a datetime is a date
    _Rich("$decimal", Decimal, _write_decimal, Decimal),
    _Rich("$datetime", datetime, _write_datetime, datetime.fromisoformat),
    _Rich("$date", date, lambda value: value.isoformat()[:10], date.fromisoformat),
    _Rich("$time", time, _write_time, time.fromisoformat),
    _Rich("$timedelta", timedelta, _write_timedelta, _read_timedelta),
    _Rich("$uuid", UUID, str, UUID),
    _Rich("$bytes", bytes, _write_bytes, _read_bytes),
)
_READ = {rich.tag: rich.read for rich in _RICH}


# --- decoding -------------------------------------------------------------------------------------------------------


def decode(tree: Json) -> Any:
    """Rebuild the Python value of an encoded tree. Raises PayloadError for an unknown tag or a bad text."""
    if isinstance(tree, dict):
        if len(tree) == 1:
            (key,) = tree
            if key.startswith("$"):
                return _decode_tagged(key, tree[key])
        return {key: decode(item) for key, item in tree.items()}
    if isinstance(tree, list):
        return [decode(item) for item in tree]
    return tree


def _decode_tagged(key: str, item: Json) -> Any:
    if key.startswith("$$"):
        return {key[1:]: decode(item)}
    read = _READ.get(key)
    if read is None:
        raise PayloadError(f"has the unknown type tag {key!r}", what="stored payload", cannot_be="read")
    try:
        return read(item)
    except (ValueError, TypeError, AttributeError, OverflowError, InvalidOperation, binascii.Error) as error:
        raise PayloadError(
            f"has a {key} that cannot be read: {error}", what="stored payload", cannot_be="read"
        ) from None


def _plain(tree: Json) -> Any:
    if isinstance(tree, dict):
        if len(tree) == 1:
            (key,) = tree
            if key.startswith("$$"):
                return {key[1:]: _plain(tree[key])}
            if key == "$timedelta":
                return str(decode(tree))
            if key.startswith("$"):
                return tree[key]
        return {key: _plain(item) for key, item in tree.items()}
    if isinstance(tree, list):
        return [_plain(item) for item in tree]
    return tree
