"""A scenario as data, and the world it is played in.

A scenario says what is started, what outsiders do, how the run stands at the end and what its log then holds, event
for event and field for field. ``$name`` in an expected event stands for a value that is bound at first sight and must
be the same wherever it is named again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from threading import Thread
from typing import Any

import pytest
from django.db import connections

from flow_app import RetryPolicy, step, workflow
from flow_app.conf import Options
from flow_app.core.instants import to_text
from flow_app.core.ports import EventStore
from flow_app.core.tasks import FlowTask
from flow_app.dispatch import FlowScheduler, handle_task
from flow_app.engine import FlowEngine
from flow_app.testing import FakeClock
from tests.engine.logbook import Crash, CrashingStore, Queue, holding, inline

RUN = "run-1"

Action = tuple[Any, ...]
EventBody = tuple[str, dict[str, Any]]


@dataclass(frozen=True)
class Scenario:
    """``outside`` follows the start, which raises ``refused`` or dies at ``crash_at``, the append of such an event.

    ``during`` is what outsiders do while a step runs for the first time.
    """

    row: str
    what: str
    flow: str
    status: str
    events: Sequence[EventBody]
    input: Any = None
    output: Any = None
    error: str | None = None
    refused: type[Exception] | None = None
    outside: Sequence[Action] = ()
    during: Mapping[str, Sequence[Action]] = field(default_factory=dict)
    calls: Sequence[str] = ()
    crash_at: str | None = None
    options: Options = field(default_factory=Options)
    blocked: str = ""


class World:
    """The store and the clock, the processes on them, and the code they run, which may be replaced."""

    def __init__(self, store: EventStore, clock: FakeClock, flows: Mapping[str, Callable[[Any], Any]]) -> None:
        self.store = store
        self.clock = clock
        self.calls: list[str] = []
        self.during: dict[str, Sequence[Action]] = {}
        self.code = dict(flows)
        self.options = Options()
        self.engine: FlowEngine = inline(store)
        self.started: list[str] = []

    def register(self, flow: str, steps: Mapping[str, Callable[[Any], Any]]) -> None:
        for name, body in steps.items():
            deliveries = 1 if name == "once" else None
            step(name, retry=RetryPolicy.none(), deliveries=deliveries)(self._watched(name, body))

        @workflow(flow, version="v1")
        def run(ctx):
            return self.code[flow](ctx)

    def _watched(self, name: str, body: Callable[[Any], Any]) -> Callable[[Any], Any]:
        def watched(ctx):
            self.calls.append(f"{name}#{ctx.attempt}")
            for action in self.during.pop(name, ()):
                self.act(action)
            return body(ctx)

        return watched

    # --- what outsiders do --------------------------------------------------------------------------------------------

    def act(self, action: Action) -> None:
        verb, *args = action
        getattr(self, f"do_{verb}")(*args)

    def do_advance(self, seconds: float) -> None:
        self.clock.advance(timedelta(seconds=seconds))

    def do_tick(self, *due: str) -> None:
        """A scheduler's tick finds just these runs, and a worker of another process handles them."""
        queue = Queue()
        other = inline(self.store, options=self.options)
        assert FlowScheduler(other, queue).tick().run_ids == list(due)
        for task in queue.take():
            handle_task(other, task)

    def do_restart(self) -> None:
        self.engine = inline(self.store, options=self.options)

    def do_deploy(self, flow: str, code: Callable[[Any], Any]) -> None:
        self.code[flow] = code

    def do_handle(self, task: FlowTask) -> None:
        handle_task(self.engine, task)

    def do_call(self, verb: str, *args: Any, gives: Any = None) -> None:
        answer = getattr(self.engine, verb)(RUN, *args)
        assert gives is None or answer == gives

    def do_fails(self, error: type[Exception], words: Sequence[str], *action: Any) -> None:
        """The action is refused, and the message names these words."""
        with pytest.raises(error) as refused:
            self.act(action)
        assert [word for word in words if word not in str(refused.value)] == []

    def do_start_at_once(self, flow: str, value: Any, times: int) -> None:
        """As many callers as that start the same run at once; each keeps the id it got."""

        def call() -> None:
            try:
                self.started.append(inline(self.store, options=self.options).start(flow, value, run_id=RUN))
            finally:
                connections.close_all()

        threads = [Thread(target=call) for _ in range(times)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def do_got(self, *ids: str) -> None:
        assert self.started == list(ids)

    def do_stands(self, status: str) -> None:
        """How the run stands now; no worker is held by it."""
        assert self.engine.snapshot(RUN).status == status
        assert self.store.row(RUN).lease_expires_at is None


def play(scenario: Scenario, world: World) -> None:
    """Play a scenario and check all it says."""
    world.options, world.during = scenario.options, dict(scenario.during)
    store: Any = world.store
    if scenario.crash_at is not None:
        store = CrashingStore(store, holding(scenario.crash_at))
    world.engine = inline(store, options=scenario.options)
    refused = Crash if scenario.crash_at is not None else scenario.refused
    with nullcontext() if refused is None else pytest.raises(refused):
        world.engine.start(scenario.flow, scenario.input, run_id=RUN)
    for action in scenario.outside:
        world.act(action)
    snapshot = world.engine.snapshot(RUN)
    assert matched(scenario.events, world) == [(item.type, _body(item)) for item in world.engine.history(RUN)]
    assert (snapshot.status, snapshot.output, snapshot.error) == (scenario.status, scenario.output, scenario.error)
    assert world.calls == list(scenario.calls)
    row = world.store.row(RUN)
    assert (row.lease_expires_at, row.blocked_code) == (None, scenario.blocked)


def _body(envelope: Any) -> dict[str, Any]:
    return {name: value for name, value in envelope.to_wire()["event"].items() if name != "type"}


def matched(expected: Sequence[EventBody], world: World) -> list[EventBody]:
    """The expected events with their placeholders filled in from the log, where it has an event in that place."""
    actual = [(item.type, _body(item)) for item in world.engine.history(RUN)]
    bound: dict[str, Any] = {}
    filled: list[EventBody] = []
    for index, (event_type, body) in enumerate(expected):
        there = actual[index][1] if index < len(actual) else {}
        filled.append((event_type, {name: _fill(value, there.get(name), bound) for name, value in body.items()}))
    return filled


def _fill(value: Any, there: Any, bound: dict[str, Any]) -> Any:
    if isinstance(value, str) and value.startswith("$"):
        return bound.setdefault(value, there)
    return to_text(value) if isinstance(value, datetime) else value
