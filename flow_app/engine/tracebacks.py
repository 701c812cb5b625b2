"""Where an exception came from: a text for people, kept beside the log and outside of all decisions."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from traceback import TracebackException
from typing import Any

from flow_app.core import events as ev
from flow_app.core.payload import clean_text
from flow_app.errors import FlowError

#: Characters of one traceback.
MOST = 16_000
_LONGEST_PART = 4000  # one frame, or one message: a message of a megabyte would leave no room for the frames
_CUT = "[... the beginning is left out ...]\n"
_OURS = f"{Path(__file__).parents[1]}{os.sep}"

#: Events that carry the error of an attempt.
_FAILURES = (ev.StepRetrying, ev.StepFailed, ev.RunRetryExhausted)


def traceback_of(error: BaseException) -> str:
    """An exception as Python prints it, causes and members of groups included, in a form that every database takes.

    No values of variables, and not the frames in which flow_app called the code that failed. Of a long one the end.
    Empty for an error of flow_app's own that no other code had a part in, and for one that cannot be printed.
    """
    try:
        return _text(TracebackException.from_exception(error, compact=True), is_ours=isinstance(error, FlowError))
    except Exception:  # whatever the exception's own code does: its attempt has an outcome all the same
        return ""


def meta_of(event: ev.Event, meta: Mapping[str, Any] | None, traceback: str) -> Mapping[str, Any]:
    """What is kept beside an event: ``meta``, and the traceback if the event carries the error that it belongs to."""
    known = meta or {}
    return {**known, "traceback": traceback} if traceback and isinstance(event, _FAILURES) else known


def _text(found: TracebackException, *, is_ours: bool) -> str:
    parts = list(_parts(found))
    if is_ours and all(_is_ours(frame.filename) for part in parts for frame in part.stack):
        return ""
    for part in parts:
        _leave_out_callers(part)
    text = "".join(_line_of(part) for part in found.format())
    return text if len(text) <= MOST else _CUT + text[len(_CUT) - MOST :].partition("\n")[2]


def _parts(found: TracebackException) -> Iterator[TracebackException]:
    """The exception, what led to it, and the members of groups."""
    waiting = [found]
    while waiting:
        part = waiting.pop()
        yield part
        waiting += [more for more in (part.__cause__, part.__context__, *(part.exceptions or ())) if more is not None]


def _leave_out_callers(part: TracebackException) -> None:
    """Take away the frames of ours that stand above the first one of other code; all stay where there is no other."""
    others = (index for index, frame in enumerate(part.stack) if not _is_ours(frame.filename))
    del part.stack[: next(others, 0)]


def _is_ours(filename: str) -> bool:
    return filename.startswith(_OURS)


def _line_of(part: str) -> str:
    return clean_text(part) if len(part) <= _LONGEST_PART else clean_text(part, limit=_LONGEST_PART) + "\n"
