"""What ids and names may look like."""

from __future__ import annotations

import re
import unicodedata

from flow_app.errors import InvalidRunIdError, InvalidRuntimeBuildIdError, InvalidTransitionError

MAX_ID = 200
MAX_RUN_ID = 128

_RUN_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,127}", re.ASCII)
_BUILD_ID = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._:+/@-]{0,126}[A-Za-z0-9])?", re.ASCII)


def check_run_id(value: object) -> str:
    """Return the run id, or raise InvalidRunIdError."""
    if not isinstance(value, str) or _RUN_ID.fullmatch(value) is None:
        raise InvalidRunIdError(value)
    return str.__str__(value)


def check_build_id(value: object) -> str:
    """Return the runtime build id, or raise InvalidRuntimeBuildIdError."""
    if not isinstance(value, str) or _BUILD_ID.fullmatch(value) is None:
        raise InvalidRuntimeBuildIdError(value)
    return str.__str__(value)


def check_id(value: object, *, what: str) -> str:
    """Return a step, wait, hook, progress or reference id or a name, or raise InvalidTransitionError.

    An id has 1 to 200 characters, is not blank, and has no control characters or lone surrogates, which databases and
    log lines do not take alike.
    """
    if not isinstance(value, str):
        raise InvalidTransitionError(f"{what} must be a string, not {type(value).__name__}")
    if not value.strip():
        raise InvalidTransitionError(f"{what} is blank")
    if len(value) > MAX_ID:
        raise InvalidTransitionError(f"{what} has {len(value)} characters, more than {MAX_ID}")
    if not value.isprintable() and any(unicodedata.category(char) in ("Cc", "Cs") for char in value):
        raise InvalidTransitionError(f"{what} {value!r} has a control character or a lone surrogate")
    return str.__str__(value)
