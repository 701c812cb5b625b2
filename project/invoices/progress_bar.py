"""A progress bar for terminals; on a dumb one, in a log or a file it is a line per quarter."""

from __future__ import annotations

import os
from typing import Protocol


class Stream(Protocol):
    def write(self, msg: str, *, ending: str) -> object: ...
    def flush(self) -> None: ...
    def isatty(self) -> bool: ...


class ProgressBar:
    WIDTH = 32

    def __init__(self, label: str, total: int, stream: Stream | None) -> None:
        """Without a stream nothing is shown."""
        self._label, self._total, self._stream = label, max(total, 1), stream
        self._redraws = stream is not None and stream.isatty() and os.environ.get("TERM") != "dumb"
        self._done = self._shown = 0

    def advance(self) -> None:
        self.show(self._done + 1)

    def show(self, done: int) -> None:
        self._done = done
        step = self._done if self._redraws else self._done * 4 // self._total
        if self._stream is None or step == self._shown:
            return
        self._shown = step
        filled = "#" * (done * self.WIDTH // self._total)
        line = f"{self._label:<8} [{filled:.<{self.WIDTH}}] {done}/{self._total}"
        ended = not self._redraws or done >= self._total
        self._stream.write(f"\r{line}" if self._redraws else line, ending="\n" if ended else "")
        self._stream.flush()
