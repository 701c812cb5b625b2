"""Two threads that meet at chosen calls into the store, and go on in a chosen order or together."""

from __future__ import annotations

from threading import Barrier, BrokenBarrierError, Event
from typing import Any

from flow_app.core.ports import EventStore

ORDERS = ("together", "first", "second")
_SECONDS = 10


class Meeting:
    """``order`` says whose call is carried out before the other's begins."""

    def __init__(self, order: str) -> None:
        self._order = order
        self._barrier = Barrier(2)
        self._done = Event()
        self.took_place = False

    def first(self, store: EventStore, call: str) -> Any:
        """The store as the first thread sees it: it comes to the meeting with its first such call."""
        return _Meeting(store, call, self, waits=self._order == "second")

    def second(self, store: EventStore, call: str) -> Any:
        return _Meeting(store, call, self, waits=self._order == "first")

    def come(self, act: Any, *, waits: bool) -> Any:
        try:
            self._barrier.wait(_SECONDS)
            self.took_place = True
        except BrokenBarrierError:
            return act()
        if waits:
            self._done.wait(_SECONDS)
        try:
            return act()
        finally:
            self._done.set()


class _Meeting:
    def __init__(self, store: EventStore, call: str, meeting: Meeting, *, waits: bool) -> None:
        self._store = store
        self._call = call
        self._meeting = meeting
        self._waits = waits
        self._has_met = False

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._store, name)
        if name != self._call or self._has_met:
            return found

        def meet(*args: Any, **kwargs: Any) -> Any:
            self._has_met = True
            return self._meeting.come(lambda: found(*args, **kwargs), waits=self._waits)

        return meet
