"""Processes that die at a chosen write: a store that stops answering, and a host that starts again after it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, NoReturn, TypeVar

from flow_app.authoring.runtime import RegistryRuntime
from flow_app.conf import Options
from flow_app.core.ports import EventStore
from flow_app.dispatch import FlowScheduler, InlineDispatcher
from flow_app.engine import FlowEngine
from flow_app.testing import FakeClock

T = TypeVar("T")

#: What changes the database: each is a moment at which a process can die, before it and after it.
WRITES = (
    "create", "claim", "append", "park", "take_due", "commit",
    "send_steps", "recall_steps", "claim_step", "close_step", "resend_step", "take_due_steps",
    "append_and_send", "take_step", "complete_step",
)  # fmt: skip


class Killed(BaseException):
    """The process is no more. No ``except Exception`` of the engine may see it."""


@dataclass
class Fate:
    """When processes die: the n-th write of all of them together, ``before`` or ``after`` it is carried out."""

    deaths: frozenset[tuple[int, str]] = frozenset()
    writes: list[str] = field(default_factory=list)

    def moment(self, name: str) -> int:
        self.writes.append(name)
        return len(self.writes)


class MortalStore:
    """The store as one process sees it, until it dies; from then on nothing gets through."""

    def __init__(self, store: EventStore, fate: Fate, *, threads: bool) -> None:
        self._store = store
        self._fate = fate
        self._threads = threads
        self._dead = False

    def die(self) -> NoReturn:
        self._dead = True
        raise Killed

    def __getattr__(self, name: str) -> Any:
        if self._dead:
            raise Killed
        found = getattr(self._store, name)
        return self._write(name, found) if name in WRITES else found

    def _write(self, name: str, act: Callable[..., Any]) -> Callable[..., Any]:
        def write(*args: Any, **kwargs: Any) -> Any:
            moment = self._before(name)
            result = act(*args, **kwargs)
            self._after(moment)
            return result

        return write

    @contextmanager
    def transaction(self) -> Iterator[None]:
        if self._dead:
            raise Killed
        with self._store.transaction():
            yield
            moment = self._before("commit")
        self._after(moment)

    def transact(self, act: Callable[[], T]) -> T:
        moments: list[int] = []

        def to_the_commit() -> T:
            result = act()
            moments.append(self._before("commit"))
            return result

        if self._dead:
            raise Killed
        result = self._store.transact(to_the_commit)
        self._after(moments[-1])
        return result

    def threads_see_writes(self) -> bool:
        return self._threads and self._store.threads_see_writes()

    def _before(self, name: str) -> int:
        if self._dead:
            raise Killed
        moment = self._fate.moment(name)
        self._die_if(moment, "before")
        return moment

    def _after(self, moment: int) -> None:
        self._die_if(moment, "after")

    def _die_if(self, moment: int, side: str) -> None:
        if (moment, side) in self._fate.deaths:
            self.die()


class Host:
    """A machine that runs one process after another on the same store."""

    def __init__(
        self,
        store: EventStore,
        clock: FakeClock,
        fate: Fate | None = None,
        *,
        run_id: str = "run",
        options: Options | None = None,
        threads: bool = False,
    ) -> None:
        self.store = store
        self.run_id = run_id
        self.clock = clock
        self.fate = fate or Fate()
        self.options = options or Options()
        self.kills = 0
        self.die: Callable[[], NoReturn]  # ends the process that lives: for step bodies
        self._threads = threads

    def process(self) -> FlowEngine:
        mortal: Any = MortalStore(self.store, self.fate, threads=self._threads)
        self.die = mortal.die
        engine = FlowEngine(mortal, RegistryRuntime(), options=self.options, secrets=("secret",))
        engine.services.dispatcher = InlineDispatcher(engine)
        return engine

    def live_through(self, script: Callable[[FlowEngine, Host], None]) -> None:
        """Run the script; after a death again from its top, in a new process, when the lease has expired."""
        while True:
            try:
                script(self.process(), self)
            except Killed:
                self.kills += 1
                assert self.kills < 100
                self.clock.advance(self.options.lease + timedelta(seconds=1))
            else:
                return

    def has_ended(self) -> bool:
        return self.store.row(self.run_id).status.is_terminal

    def settle(self, engine: FlowEngine, until: Callable[[], bool]) -> None:
        """Tick, and let time pass, until it is so."""
        scheduler = FlowScheduler(engine)
        for _ in range(40):
            scheduler.tick()
            if until():
                return
            self.clock.advance(timedelta(seconds=31))
        raise AssertionError(f"nothing moves any more; the row is {list(self.store.rows())}")
