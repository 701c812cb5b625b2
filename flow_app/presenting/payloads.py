"""Payloads for the eye: plain JSON, cut where it gets long, without what looks like a secret."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from flow_app.core.payload import Payload, clean_text
from flow_app.errors import PayloadError

#: Characters of one payload that a page shows.
EXCERPT = 10_000
HIDDEN = "••••••"

_WORDS = "password|passwd|pwd|passphrase|secret|token|authorization|cookie|credential|jwt|bearer"
_KEYS = "api|access|private|secret|signing|encryption"
# A word of its own at the end: after a separator, or where camelCase begins one.
_SECRET = re.compile(
    rf"(?:^|[\W_]|(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z]))(?i:{_WORDS}|(?:{_KEYS})[\W_]?key)(?i:s?)$"
)

Redact = Callable[[Any], Any]


@dataclass(frozen=True, slots=True)
class Excerpt:
    """``text`` is what a page may show; ``size`` how many characters the whole has, 0 where that is not known."""

    text: str
    size: int
    is_cut: bool


_UNREADABLE = Excerpt("(not readable)", 0, is_cut=True)


def redact(value: Any) -> Any:
    """Plain JSON without the values of keys that are named like secrets (``password``, ``api_key``, ``accessToken``).

    The default of both faces. A project that knows better overrides ``redact`` of its ModelAdmin or ViewSet.
    """
    if isinstance(value, dict):
        return {key: HIDDEN if _SECRET.search(key) else redact(item) for key, item in value.items()}
    if isinstance(value, list):
        return [redact(item) for item in value]
    return value


def excerpt(stored: str, *, redact: Redact = redact, limit: int = EXCERPT) -> Excerpt:
    """Stored canonical text, as a page shows it."""
    try:
        return excerpt_of(json.loads(stored), redact=redact, limit=limit)
    except (ValueError, RecursionError):
        return _UNREADABLE


def excerpt_of(tree: Any, *, redact: Redact = redact, limit: int = EXCERPT) -> Excerpt:
    """A tree that was decoded from stored text, or a part of one."""
    try:
        shown = json.dumps(redact(Payload(tree).plain), indent=2, ensure_ascii=False)
    except (ValueError, RecursionError, PayloadError):
        return _UNREADABLE
    return cut(shown, limit=limit)


def cut(text: str, *, limit: int = EXCERPT) -> Excerpt:
    """Free text, an error for instance, in a form that every browser and database takes."""
    return Excerpt(clean_text(text, limit=limit), len(text), is_cut=len(text) > limit)


def mask_token(digest: str) -> str:
    """Enough of a token's digest to tell two apart; the token itself is kept nowhere."""
    return f"{digest.removeprefix('sha256:')[:8]}…"
