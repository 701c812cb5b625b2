"""Has this worker been told to stop? Then its drives park at their next turn, and it takes up nothing more.

The answer lies in a byte of memory that forked processes share, so that what the parent is told, its children know.
"""

from __future__ import annotations

import mmap

_told = mmap.mmap(-1, 1)


def request() -> None:
    """A worker process calls this when it begins to shut down warmly; safe in a signal handler."""
    _told[0] = 1


def requested() -> bool:
    return _told[0] == 1


def withdraw() -> None:
    """For tests, and for processes that outlive their worker."""
    _told[0] = 0
