"""Section 10: whatever write a process dies at, the next one brings the run to the same end."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest

from flow_app.conf import Options, Slice
from flow_app.core.ports import EventStore
from flow_app.engine import FlowEngine
from flow_app.store import DjangoEventStore, InMemoryEventStore
from flow_app.testing import FakeClock
from tests.faults.mortal import Fate, Host
from tests.faults.workflows import Ledger, rich

Script = Callable[[FlowEngine, Host], None]


def to_the_end(engine: FlowEngine, host: Host) -> None:
    """What a host does with the run, each call of it safe to repeat."""
    _to_the_hook(engine, host)
    engine.resume_hook(host.run_id, "approval", {"by": "ann"})
    host.settle(engine, until=host.has_ended)


def to_a_cancellation(engine: FlowEngine, host: Host) -> None:
    _to_the_hook(engine, host)
    engine.request_cancellation(host.run_id, "changed my mind")
    host.settle(engine, until=host.has_ended)


def _to_the_hook(engine: FlowEngine, host: Host) -> None:
    engine.start("child", run_id=f"{host.run_id}.child")
    engine.start("rich", {"amount": 12}, run_id=host.run_id)
    host.settle(engine, until=lambda: host.store.hook(host.store.row(host.run_id), "approval") is not None)


class Trial:
    """One life of a run, with the deaths of one fate."""

    def __init__(self, store: EventStore, script: Script, fate: Fate, *, run_id: str = "run", **kwargs: Any) -> None:
        clock: Any = store.clock
        self.ledger = Ledger()
        rich(self.ledger, due=clock.now() + timedelta(minutes=10))
        self.host = Host(store, clock, fate, run_id=run_id, **kwargs)
        self.host.live_through(script)
        self.history = store.history(run_id)
        self.snapshot = self.host.process().snapshot(run_id)

    @property
    def what_happened(self) -> dict[str, list[str]]:
        """Types of events in order, for the run and each thing in it: members of a batch may settle in any order."""
        happened: dict[str, list[str]] = defaultdict(list)
        for item in self.history:
            names = ("step_id", "wait_id", "hook_id")
            subject = next((item.data[name] for name in names if name in item.data), "run")
            happened[subject].append(f"{item.type}/{item.data.get('attempt', '')}")
        return happened


def check(trial: Trial, model: Trial, *, serial: bool = True) -> None:
    """The same end and the same facts as in a life without deaths, and no body run oftener than deaths explain."""
    kills = trial.host.kills
    assert kills == len(trial.host.fate.deaths)
    assert trial.snapshot.terminal_outcome == model.snapshot.terminal_outcome
    assert [item.sequence for item in trial.history] == list(range(1, len(trial.history) + 1))
    assert trial.what_happened == model.what_happened
    calls = trial.ledger.calls
    assert set(calls) == set(model.ledger.calls)
    assert all(count <= 1 + kills for count in calls.values())
    if serial:  # one body runs at a time, so a death interrupts at most one
        assert calls.total() <= model.ledger.calls.total() + kills
    row = trial.host.store.row(trial.host.run_id)
    assert (row.lease_expires_at, row.wake_at, row.open_waits, row.active_hooks) == (None, None, 0, 0)


SCRIPTS = [to_the_end, to_a_cancellation]
WAYS = [(Options(), False), (Options(drive_slice=Slice(steps=2)), False), (Options(), True)]


def single_deaths(writes: int) -> Iterator[frozenset[tuple[int, str]]]:
    for moment in range(1, writes + 1):
        for side in ("before", "after"):
            yield frozenset({(moment, side)})


def pairs_of_deaths(writes: int, how_many: int) -> Iterator[frozenset[tuple[int, str]]]:
    chance = random.Random(5)
    for _ in range(how_many):
        first, second = sorted(chance.sample(range(1, writes + 1), 2))
        yield frozenset({(first, chance.choice(["before", "after"])), (second, chance.choice(["before", "after"]))})


@pytest.mark.parametrize("script", SCRIPTS)
@pytest.mark.parametrize(("options", "threads"), WAYS, ids=["whole", "sliced", "threads"])
def test_every_death_in_memory(script: Script, options: Options, threads: bool) -> None:
    def live(deaths: frozenset[tuple[int, str]] = frozenset()) -> Trial:
        store = InMemoryEventStore(clock=FakeClock())
        return Trial(store, script, Fate(deaths), options=options, threads=threads)

    model = live()
    writes = len(model.host.fate.writes)
    assert {"create", "claim", "append", "park", "commit"} <= set(model.host.fate.writes)
    for deaths in [*single_deaths(writes), *pairs_of_deaths(writes, 30)]:
        check(live(deaths), model, serial=not threads)


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("script", SCRIPTS)
def test_every_death_on_the_database(script: Script) -> None:
    def live(run_id: str, deaths: frozenset[tuple[int, str]] = frozenset()) -> Trial:
        return Trial(DjangoEventStore(clock=FakeClock()), script, Fate(deaths), run_id=run_id)

    model = live("model")
    writes = len(model.host.fate.writes)
    for index, deaths in enumerate([*single_deaths(writes), *pairs_of_deaths(writes, 6)]):
        check(live(f"run-{index}", deaths), model)
