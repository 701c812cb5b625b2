"""The keeper: renews leases while bodies of steps run longer than a part of one."""

from __future__ import annotations

import logging
import math
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta

from django.db import connections

logger = logging.getLogger("flow_app.engine")

_PARTS = 3  # a lease is renewed when a third of it has passed


class Kept:
    """A lease that is being kept while a body is ``running``; ``lost`` once somebody else has taken it over."""

    __slots__ = ("_renew", "lease", "lost", "renew_at", "running", "what")

    def __init__(self, renew: Callable[[], bool], lease: timedelta, what: str) -> None:
        self._renew = renew
        self.lease = lease
        self.what = what
        self.lost = False
        self.running = True
        self.renew_at = self.next_time()

    def next_time(self) -> float:
        return time.monotonic() + self.lease.total_seconds() / _PARTS

    def renew(self) -> None:
        """The database may be away for a moment: then the next try may be in time."""
        if self.running:
            try:
                self.lost = not self._renew()
            except Exception:
                logger.warning("The lease on %s could not be renewed this time", self.what, exc_info=True)
        self.renew_at = self.next_time()


class LeaseKeeper:
    """One thread per process, started with the first lease to keep, on a connection of its own.

    Short steps cost nothing: it sleeps until the oldest lease is a third over, and most drives are over by then. A
    lease is renewed only while a body runs; workflow code that hangs loses it.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._kept: dict[int, Kept] = {}
        self._thread: threading.Thread | None = None
        self._wakes_at = math.inf
        os.register_at_fork(after_in_child=self._forget)

    def _forget(self) -> None:
        """A forked process has neither the thread nor the leases."""
        self._changed = threading.Condition()
        self._kept = {}
        self._thread = None
        self._wakes_at = math.inf

    @contextmanager
    def keeping(self, renew: Callable[[], bool], *, lease: timedelta, what: str) -> Iterator[Kept]:
        """Keep a lease during the block, whenever what it yields says that a body is running.

        ``renew`` extends it, and says False when it is held no more.
        """
        kept = Kept(renew, lease, what)
        with self._changed:
            self._kept[id(kept)] = kept
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="flow_app-leases", daemon=True)
                self._thread.start()
            elif kept.renew_at < self._wakes_at:
                self._changed.notify()
        try:
            yield kept
        finally:
            with self._changed:
                del self._kept[id(kept)]

    def _run(self) -> None:
        while True:
            with self._changed:
                due = self._next_due()
            for kept in due:
                kept.renew()
            if due:
                connections.close_all()

    def _next_due(self) -> list[Kept]:
        """Wait until a lease is to be renewed; called with the condition held."""
        self._wakes_at = min((kept.renew_at for kept in self._kept.values() if not kept.lost), default=math.inf)
        now = time.monotonic()
        if self._wakes_at > now:
            self._changed.wait(None if self._wakes_at == math.inf else self._wakes_at - now)
            now = time.monotonic()
        return [kept for kept in self._kept.values() if not kept.lost and kept.renew_at <= now]


keeper = LeaseKeeper()
