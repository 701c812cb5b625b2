"""What goes wrong under a drive: each trouble stops just what it must."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest
from django.db.utils import OperationalError

from flow_app import RetryPolicy, WorkflowProgress, step, workflow
from flow_app.authoring.runtime import RegistryRuntime
from flow_app.conf import Options, Slice
from flow_app.core.ports import EventStore, RunRow
from flow_app.dispatch import FlowScheduler, InlineDispatcher
from flow_app.engine import FlowEngine
from flow_app.errors import LeaseLostError, PayloadError, RuntimeBuildUnavailableError, RuntimeFailureError, StoreError
from flow_app.store import InMemoryEventStore
from flow_app.testing import FakeClock
from tests.engine.logbook import Crash, CrashingStore, alone, holding, inline


def _engine(store: EventStore, **options: Any) -> FlowEngine:
    engine = FlowEngine(store, RegistryRuntime(), secrets=("secret",), options=Options(**options))
    engine.services.dispatcher = InlineDispatcher(engine)
    return engine


@pytest.mark.parametrize(
    "error",
    [StoreError("x"), LeaseLostError("other", 1), RuntimeBuildUnavailableError("o", required="v", current=None)],
)
def test_an_engine_error_that_workflow_code_lets_through_blocks_its_run(store: EventStore, error: Exception) -> None:
    @workflow("nested")
    def nested(ctx: Any) -> Any:
        raise error

    engine = _engine(store)
    with pytest.raises(RuntimeFailureError):
        engine.start("nested", run_id="r")
    row = store.row("r")
    assert (row.blocked_code, row.lease_expires_at) == ("runtime", None)


class Unreadable(InMemoryEventStore):
    def load(self, row: RunRow, *, after: int = 0) -> Any:
        raise StoreError("Event 2 cannot be read back.") from PayloadError("is damaged")


def test_a_history_that_cannot_be_read_blocks_the_run(clock: FakeClock) -> None:
    workflow("w")(lambda ctx: ctx.complete())
    store = Unreadable(clock=clock)
    engine = _engine(store)
    dispatcher, engine.services.dispatcher = engine.services.dispatcher, None
    engine.start("w", run_id="r")
    engine.services.dispatcher = dispatcher
    with pytest.raises(StoreError):
        engine.drive("r")
    assert store.row("r").blocked_code == "store"


def test_a_step_that_stops_its_process_each_time_ends_as_worker_lost(store: EventStore, clock: FakeClock) -> None:
    bodies: list[int] = []

    @step("exit", retry=RetryPolicy.none())
    def leave() -> None:
        bodies.append(1)
        raise SystemExit

    workflow("w")(lambda ctx: ctx.schedule_step("s", leave))
    engine = _engine(store, max_deliveries=3)
    with pytest.raises(SystemExit):
        engine.start("w", run_id="r")
    for _ in range(2):
        with pytest.raises(SystemExit):
            engine.drive("r")
    assert engine.drive("r").error == "worker lost"
    assert len(bodies) == 3


def test_an_interrupt_between_steps_commits_what_happened_and_frees_the_run(store: EventStore) -> None:
    bodies: list[int] = []
    interrupts = [KeyboardInterrupt]

    @step("s")
    def body() -> None:
        bodies.append(1)

    @workflow("w")
    def w(ctx: Any) -> Any:
        if not ctx.step_completed("s"):
            return ctx.schedule_step("s", body)
        if interrupts:
            raise interrupts.pop()
        return ctx.complete()

    engine = _engine(store)
    with pytest.raises(KeyboardInterrupt):
        engine.start("w", run_id="r")
    assert store.row("r").lease_expires_at is None
    assert engine.drive("r").status == "completed"
    assert len(bodies) == 1


def test_a_siblings_retries_do_not_hide_a_step_that_kills_its_worker(store: EventStore, clock: FakeClock) -> None:
    deliveries: list[int] = []

    @step("killer", retry=RetryPolicy.none().continue_workflow_on_failure())
    def killer() -> None:
        deliveries.append(1)
        raise SystemExit

    @step("sibling", retry=RetryPolicy.fixed(40, timedelta(seconds=1)))
    def sibling() -> None:
        raise ValueError("again")

    @workflow("w")
    def w(ctx: Any) -> Any:
        if ctx.step_failed("a"):
            return ctx.complete(ctx.step_failed("a"))
        return ctx.schedule_steps([ctx.step("b", sibling), ctx.step("a", killer)])

    engine = _engine(_Serial(clock=clock), max_deliveries=3)
    for attempt in range(12):
        try:
            if attempt:
                engine.resume_scheduled_run("r")
            else:
                engine.start("w", run_id="r")
        except SystemExit:
            clock.advance(timedelta(minutes=1))
    assert engine.snapshot("r").output == "worker lost"
    assert len(deliveries) <= 4


class _Serial(InMemoryEventStore):
    def threads_see_writes(self) -> bool:
        return False


class ShakyLock(InMemoryEventStore):
    """The database goes away once, just when the driver makes up for a conflict."""

    troubles = 0

    @contextmanager
    def transaction(self) -> Iterator[None]:
        with super().transaction():
            if self.troubles:
                self.troubles -= 1
                raise OperationalError("the server went away")
            yield


def test_an_outcome_survives_a_database_that_goes_away_during_a_conflict(clock: FakeClock) -> None:
    bodies: list[int] = []
    store = ShakyLock(clock=clock)
    engine = _engine(store)

    @step("s")
    def body() -> str:
        bodies.append(1)
        engine.record_progress("r", WorkflowProgress("p", 1))
        store.troubles = 1
        return "done"

    engine.start(alone(body), run_id="r")
    assert engine.snapshot("r").output == "done"
    assert len(bodies) == 1


def test_a_blocked_run_is_looked_at_when_its_next_deadline_comes(store: EventStore, clock: FakeClock) -> None:
    deadline = clock.now() + timedelta(seconds=6)

    @workflow("w")
    def w(ctx: Any) -> Any:
        if ctx.hook_expired("h"):
            return ctx.complete("expired")
        if ctx.hook_created("h"):
            raise ValueError("not yet")
        return ctx.create_hook("h", expires_at=deadline)

    engine = _engine(store)
    with pytest.raises(RuntimeFailureError):
        engine.start("w", run_id="r")
    clock.advance(timedelta(seconds=5))
    FlowScheduler(engine).tick()
    assert store.row("r").wake_at == deadline
    clock.advance(timedelta(seconds=1))
    FlowScheduler(engine).tick()
    assert engine.snapshot("r").output == "expired"


def test_members_of_a_batch_that_run_at_most_once_do_not_run_again_and_the_others_do(clock: FakeClock) -> None:
    store = InMemoryEventStore(clock=clock)
    bodies: list[str] = []
    policy = RetryPolicy.none().continue_workflow_on_failure()
    step("once", retry=policy, deliveries=1)(lambda: bodies.append("once"))
    step("often", retry=policy)(lambda: bodies.append("often"))
    names = {"a": "once", "b": "often", "c": "once"}

    @workflow("w")
    def w(ctx: Any) -> Any:
        if all(ctx.step_completed(name) or ctx.step_failed(name) is not None for name in names):
            return ctx.complete({name: ctx.step_failed(name) for name in names})
        return ctx.schedule_steps([ctx.step(step_id, name) for step_id, name in names.items()])

    dying = inline(CrashingStore(store, holding("step_completed")))  # the process dies before any outcome is written
    with pytest.raises(Crash):
        dying.start("w", run_id="r")
    bodies.clear()
    clock.advance(timedelta(minutes=1))
    assert _engine(store).drive("r").output == {"a": "worker lost", "b": None, "c": "worker lost"}
    assert bodies == ["often"]


def test_no_further_body_of_a_batch_starts_once_the_run_was_ended_from_outside(clock: FakeClock) -> None:
    ran: list[str] = []
    engine = _engine(_Serial(clock=clock))

    @step("member")
    def member(name: str) -> None:
        ran.append(name)
        engine.force_cancel("r", "enough")

    workflow("w")(lambda ctx: ctx.schedule_steps([ctx.step(name, member, name) for name in "abc"]))
    engine.start("w", run_id="r")
    assert ran == ["a"]
    assert engine.snapshot("r").status == "cancelled"


def test_retries_without_delay_keep_to_the_slice(store: EventStore) -> None:
    claims: list[int] = []

    @step("flaky", retry=RetryPolicy.fixed(10))
    def flaky() -> None:
        raise ValueError("again")

    workflow("w")(lambda ctx: ctx.schedule_step("s", flaky))
    engine = _engine(store, drive_slice=Slice(steps=3))
    claim = store.claim
    store.claim = lambda *args, **kwargs: (claims.append(1), claim(*args, **kwargs))[1]  # type: ignore[method-assign]
    engine.start("w", run_id="r")
    assert engine.snapshot("r").steps["s"].attempt == 10
    assert len(claims) >= 3


def test_a_dispatcher_that_fails_at_the_end_of_a_slice_blocks_nothing(store: EventStore) -> None:
    class Broken(InlineDispatcher):
        def dispatch_for_build(self, build: str | None, task: Any) -> None:
            raise ConnectionError("broker down")

    step("s")(lambda: None)
    workflow("w")(lambda ctx: ctx.schedule_step(f"s{sum(ctx.step_completed(f's{i}') for i in range(9))}", "s"))
    engine = _engine(store, drive_slice=Slice(steps=2))
    engine.services.dispatcher = Broken(engine)
    engine.start("w", run_id="r")
    row = store.row("r")
    assert (row.blocked_code, row.wake_reason, row.lease_expires_at) == ("", "dispatched", None)
