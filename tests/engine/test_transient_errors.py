"""Verbs while the database gives up on transactions: tried again, written once, told once - or refused as a whole."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

import pytest
from django.db import DatabaseError, connection, transaction
from django.db.utils import OperationalError

from flow_app import workflow
from flow_app.authoring.runtime import RegistryRuntime
from flow_app.core.events import EventEnvelope
from flow_app.core.policy import ChildOperationReference, WorkflowProgress
from flow_app.core.tasks import FlowTask
from flow_app.dispatch import FlowScheduler, InlineDispatcher
from flow_app.engine import FlowEngine
from flow_app.errors import StoreError
from flow_app.store import DjangoEventStore
from flow_app.store.transactions import OwnAtomic

pytestmark = pytest.mark.django_db(transaction=True)


def gave_up() -> OperationalError:
    """What Django raises for SQLite's lock, PostgreSQL's deadlock and MariaDB's."""
    messages = {"sqlite": ("database is locked",), "postgresql": ("deadlock detected",), "mysql": (1213, "Deadlock")}
    error = OperationalError(*messages[connection.vendor])
    error.__cause__ = Exception()
    error.__cause__.sqlstate = "40P01"  # type: ignore[attr-defined]
    return error


class Commits:
    """Ends as many of the store's own transactions as it is told in an error, at their very end."""

    def __init__(self) -> None:
        self.failing = 0
        self.tries = 0
        self.error: Callable[[], DatabaseError] = gave_up

    def check(self) -> None:
        self.tries += 1
        if self.failing:
            self.failing -= 1
            raise self.error()


@pytest.fixture
def commits(monkeypatch: pytest.MonkeyPatch) -> Commits:
    state = Commits()

    @contextmanager
    def checked(store: DjangoEventStore, *, savepoint: bool = True) -> Iterator[None]:
        outermost = not any(isinstance(block, OwnAtomic) for block in store.connection.atomic_blocks)
        with OwnAtomic(store.using, savepoint, False):
            yield
            if outermost:
                state.check()

    monkeypatch.setattr(DjangoEventStore, "atomic", checked)
    return state


@pytest.fixture
def told() -> list[str]:
    return []


@pytest.fixture
def engine(told: list[str]) -> FlowEngine:
    """One that leaves the driving to others."""

    class Listener:
        def on_event(self, envelope: EventEnvelope) -> None:
            assert not connection.in_atomic_block
            told.append(envelope.type)

    return FlowEngine(DjangoEventStore(), RegistryRuntime(), secrets=("secret",), observers=(Listener(),))


@pytest.fixture
def run_id(request: pytest.FixtureRequest, engine: FlowEngine, told: list[str]) -> str:
    """A run that waits for a hook - or for a timer, where that is what the verb is about."""

    @workflow("approval")
    def approval(ctx: Any) -> Any:
        return ctx.wait_until("w", datetime(2999, 1, 1, tzinfo=UTC)) if ctx.input == "timer" else ctx.create_hook("h")

    run_id = engine.start("approval", "timer" if "wait_completed" in request.node.name else None)
    engine.drive(run_id)
    told.clear()
    return run_id


DEADLINE = datetime(2026, 1, 1, tzinfo=UTC)
VERBS: dict[str, Callable[[FlowEngine, str], Any]] = {
    "hook_received": lambda engine, run_id: engine.resume_hook(run_id, "h", 1),
    "hook_disposed": lambda engine, run_id: engine.dispose_hook(run_id, "h"),
    "wait_completed": lambda engine, run_id: engine.resume_wait(run_id, "w"),
    "run_cancellation_requested": lambda engine, run_id: engine.request_cancellation(run_id, reason="late"),
    "run_cancelled": lambda engine, run_id: engine.force_cancel(run_id),
    "run_timed_out": lambda engine, run_id: engine.terminate_for_timeout(run_id, DEADLINE),
    "run_progress_recorded": lambda engine, run_id: engine.record_progress(run_id, WorkflowProgress("p", 1)),
    "child_operation_linked": lambda engine, run_id: engine.link_child_operation(
        run_id, ChildOperationReference("c", "job", "external-1")
    ),
}
verbs = pytest.mark.parametrize("name", VERBS)


@verbs
def test_a_verb_that_the_database_gave_up_on_is_tried_again_and_writes_and_tells_once(
    name: str, engine: FlowEngine, run_id: str, commits: Commits, told: list[str]
) -> None:
    before = engine.row(run_id).last_sequence
    commits.failing = 1
    assert VERBS[name](engine, run_id)
    assert commits.tries == 2
    assert [envelope.type for envelope in engine.history(run_id, after=before)] == told == [name]


@verbs
def test_a_verb_on_which_the_database_gives_up_for_good_is_a_store_error_and_writes_nothing(
    name: str, engine: FlowEngine, run_id: str, commits: Commits, told: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("flow_app.store.transactions.time.sleep", lambda seconds: None)
    before = engine.row(run_id)
    commits.failing = 1000
    with pytest.raises(StoreError) as refused:
        VERBS[name](engine, run_id)
    assert isinstance(refused.value.__cause__, OperationalError)
    assert commits.tries > 2
    assert (engine.row(run_id), told) == (before, [])
    commits.failing = 0
    assert VERBS[name](engine, run_id)  # and nothing of it is left behind
    assert told == [name]


@verbs
def test_another_error_of_the_database_is_a_store_error_at_once(
    name: str, engine: FlowEngine, run_id: str, commits: Commits, told: list[str]
) -> None:
    before = engine.row(run_id)
    commits.failing, commits.error = 1, lambda: DatabaseError("disk full")
    with pytest.raises(StoreError, match="disk full"):
        VERBS[name](engine, run_id)
    assert (engine.row(run_id), told, commits.tries) == (before, [], 1)


@verbs
def test_in_the_callers_transaction_the_error_is_the_callers(
    name: str, engine: FlowEngine, run_id: str, commits: Commits, told: list[str]
) -> None:
    before = engine.row(run_id)
    commits.failing = 1
    with pytest.raises(OperationalError), transaction.atomic():
        VERBS[name](engine, run_id)
    assert (engine.row(run_id), told, commits.tries) == (before, [], 1)


def test_a_start_that_finds_its_run_is_tried_again(engine: FlowEngine, run_id: str, commits: Commits) -> None:
    if connection.vendor != "postgresql":  # there the refused insert has no transaction of its own
        commits.check()
    commits.failing = 1
    assert engine.start("approval", run_id=run_id) == run_id


def test_a_tick_that_the_database_gave_up_on_takes_its_runs_at_the_second_try(
    engine: FlowEngine, run_id: str, commits: Commits
) -> None:
    sent: list[FlowTask] = []

    class Sending(InlineDispatcher):
        def dispatch(self, task: FlowTask) -> None:
            sent.append(task)

    engine.resume_hook(run_id, "h", 1)
    commits.tries, commits.failing = 0, 1
    assert FlowScheduler(engine, Sending(engine)).tick().run_ids == [run_id]
    assert (commits.tries, len(sent), engine.row(run_id).dispatches) == (2, 1, 1)


def test_what_an_act_after_the_commit_raises_repeats_nothing(commits: Commits) -> None:
    store = DjangoEventStore()
    done: list[str] = []

    def act() -> None:
        done.append("act")
        store.on_commit(lambda: done.append("after"))
        store.on_commit(after)

    def after() -> None:
        raise gave_up()

    with pytest.raises(OperationalError):
        store.transact(act)
    assert done == ["act", "after"]


def test_a_part_that_fails_and_is_survived_takes_back_what_it_wanted_done(commits: Commits) -> None:
    store = DjangoEventStore()
    done: list[str] = []

    def part() -> None:
        store.on_commit(lambda: done.append("part"))
        raise ZeroDivisionError

    def act() -> None:
        store.on_commit(lambda: done.append("whole"))
        with pytest.raises(ZeroDivisionError):
            store.transact(part)

    store.transact(act)
    assert done == ["whole"]
