"""What is to happen once a transaction of the store's own has committed."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class AfterCommit(threading.local):
    """Acts of this thread, kept until its outermost block has ended well. A block that fails forgets its own."""

    def __init__(self) -> None:
        self._depth = 0
        self._acts: list[Callable[[], None]] = []

    @contextmanager
    def block(self) -> Iterator[None]:
        """Put it around the transaction: the acts see everything committed."""
        before = len(self._acts)
        self._depth += 1
        try:
            yield
        except BaseException:
            del self._acts[before:]
            raise
        finally:
            self._depth -= 1
        if not self._depth:
            acts, self._acts = self._acts, []
            for act in acts:
                act()

    def call(self, act: Callable[[], None]) -> None:
        """At once when no block is open."""
        if self._depth:
            self._acts.append(act)
        else:
            act()
