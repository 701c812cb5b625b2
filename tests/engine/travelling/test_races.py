"""A step's outcome, or its worker's claim, meets whoever else writes to the run: in every order both are right."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection

from flow_app import RetryPolicy, errors, step, workflow
from flow_app.authoring import registry
from flow_app.core.context import StepContext
from flow_app.core.projection import fold
from flow_app.core.tasks import RunStep
from flow_app.models import Event, Run, StepExecution
from flow_app.store import DjangoEventStore
from tests.engine.mailbox import Broker
from tests.faults.meeting import ORDERS, Meeting
from tests.store.support import at_once

pytestmark = pytest.mark.django_db(transaction=True)

REPEATS = int(os.environ.get("FLOW_TEST_REPEATS", "5" if connection.vendor == "sqlite" else "8"))


class LongWay(DjangoEventStore):
    """What all databases do, on PostgreSQL too: look first, and write under the run's lock."""

    def take_step(self, *args: Any, **kwargs: Any) -> None:
        return None

    def complete_step(self, *args: Any, **kwargs: Any) -> None:
        return None

    def append_and_send(self, *args: Any, **kwargs: Any) -> None:
        return None


LONG: list[tuple[type[DjangoEventStore], str]] = [(LongWay, "claim_step"), (LongWay, "transact")]
SHORT: list[tuple[type[DjangoEventStore], str]] = [(DjangoEventStore, "take_step"), (DjangoEventStore, "complete_step")]
#: A worker's store, and the call by which it takes a step, or says what came of it.
CALLS = [*LONG, *SHORT] if connection.vendor == "postgresql" else LONG
OUTCOMES = CALLS[1::2]


def named(case: Any) -> str:
    return case if isinstance(case, str) else case.__name__


class Case:
    """A run with two steps out. The race is over the first; the second is the rest of the batch."""

    def __init__(self, stores: type[DjangoEventStore] = DjangoEventStore) -> None:
        self.broker = Broker(store=stores())
        self.bodies: list[str] = []

        @step("job", retry=RetryPolicy.fixed(2, timedelta(0)))
        def job(ctx: StepContext) -> str:
            self.bodies.append(ctx.step_id)
            if ctx.input == "fails" and ctx.attempt == 1:
                raise ValueError("once")
            return f"{ctx.step_id}{ctx.attempt}"

        @workflow("w")
        def w(ctx: Any) -> Any:
            if ctx.cancellation_request is not None:
                return ctx.cancel()
            if ctx.step_completed("a") and ctx.step_completed("b"):
                return ctx.complete([ctx.step_output("a"), ctx.step_output("b")])
            return ctx.schedule_steps([ctx.step("a", "job", ctx.input), ctx.step("b", "job")])

    def start(self, given: str = "") -> None:
        self.broker.engine.start("w", given, run_id="r")
        self.broker.drive()
        self.broker.box.steps.clear()

    def run(self, step_id: str, *, store: Any = None) -> Any:
        return self.broker.run(RunStep("r", step_id, 1), engine=self.broker.worker(store))

    def settle(self) -> None:
        """Deliver what is left, and let the scheduler find what nobody sent."""
        for _ in range(20):
            self.broker.work_off()
            if self.broker.store.row("r").status.is_terminal:
                break
            StepExecution.objects.update(wake_at=self.broker.store.clock.now())
            self.broker.tick()
        fold("r", self.broker.engine.history("r"))
        row = self.broker.store.row("r")
        assert row.status.is_terminal
        assert (row.steps_out, row.wake_at, self.broker.out()) == (0, None, [])

    @property
    def completed(self) -> bool:
        return "step_completed" in self.broker.types()


def race(
    order: str,
    call: str,
    other: Callable[[Case, Any], Any],
    other_call: str,
    *,
    given: str = "",
    stores: type[DjangoEventStore] = LongWay,
) -> Case:
    """Step ``a``'s worker comes to ``call`` while the other is at ``other_call``."""
    case = Case(stores)
    case.start(given)
    meeting = Meeting(order)
    store = case.broker.store
    results = at_once(
        lambda: case.run("a", store=meeting.first(store, call)),
        lambda: other(case, meeting.second(store, other_call)),
    )
    for result in results:
        if isinstance(result, BaseException) and not isinstance(result, errors.LeaseLostError):
            raise result
    assert meeting.took_place
    return case


def cancel(case: Case, store: Any) -> Any:
    return case.broker.worker(store).request_cancellation("r", "stop")


def force(case: Case, store: Any) -> Any:
    return case.broker.worker(store).force_cancel("r")


def pause(case: Case, store: Any) -> Any:
    return case.broker.worker(store).pause("r")


def drive(case: Case, store: Any) -> Any:
    return case.broker.worker(store).drive("r")


def sibling(case: Case, store: Any) -> Any:
    return case.run("b", store=store)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize(("stores", "call"), OUTCOMES, ids=named)
@pytest.mark.parametrize("given", ["", "fails"])
def test_an_outcome_and_a_sibling(order, stores, call, given):
    """One that fails takes the long way, always."""
    for _ in range(REPEATS):
        case = race(order, "transact" if given else call, sibling, call, given=given, stores=stores)
        assert case.broker.box.drives == ([] if given else ["r"])
        case.settle()
        assert case.broker.engine.snapshot("r").output == ["a2" if given else "a1", "b1"]
        _forget(case)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize(("stores", "call"), OUTCOMES, ids=named)
@pytest.mark.parametrize("other_call", ["claim", "park"])
def test_an_outcome_and_a_drive(order, stores, call, other_call):
    """Whatever the drive has seen, it does not park past the outcome, and the join is passed once."""
    for _ in range(REPEATS):
        case = race(order, call, drive, other_call, stores=stores)
        case.run("b")
        case.settle()
        assert case.broker.engine.snapshot("r").output == ["a1", "b1"]
        assert case.bodies == ["a", "b"]
        _forget(case)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize(("stores", "call"), CALLS, ids=named)
def test_a_worker_and_a_request_to_cancel(order, stores, call):
    """A body that began is heard before the run cleans up; one that did not begin never does."""
    for _ in range(REPEATS):
        case = race(order, call, cancel, "transact", stores=stores)
        case.settle()
        snapshot = case.broker.engine.snapshot("r")
        assert snapshot.status == "cancelled"
        assert case.completed is ("a" in case.bodies)
        assert "b" not in case.bodies
        _forget(case)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize(("stores", "call"), CALLS, ids=named)
def test_a_worker_and_the_end_of_the_run(order, stores, call):
    for _ in range(REPEATS):
        case = race(order, call, force, "transact", stores=stores)
        case.settle()
        assert case.broker.engine.snapshot("r").status == "cancelled"
        assert case.broker.types()[-1] == "run_cancelled"
        _forget(case)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize(("stores", "call"), CALLS, ids=named)
@pytest.mark.parametrize("given", ["", "fails"])
def test_a_worker_and_a_pause(order, stores, call, given):
    call = "transact" if given and call == "complete_step" else call
    for _ in range(REPEATS):
        case = race(order, call, pause, "transact", given=given, stores=stores)
        row = case.broker.store.row("r")
        assert row.paused_at is not None
        assert row.wake_at is None
        case.broker.engine.unpause("r")
        case.settle()
        assert case.broker.engine.snapshot("r").output == ["a2" if given else "a1", "b1"]
        _forget(case)


SENDS: list[tuple[type[DjangoEventStore], str]] = [(LongWay, "send_steps")]
if connection.vendor == "postgresql":
    SENDS.append((DjangoEventStore, "append_and_send"))


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize(("stores", "call"), SENDS, ids=named)
@pytest.mark.parametrize("other", [cancel, force, pause])
def test_a_batch_that_is_being_sent_and_whoever_stops_its_run(order, stores, call, other):
    """In the long way the run's row is locked by then: the other one comes second, whatever the order."""
    for _ in range(REPEATS):
        case, meeting = Case(stores), Meeting("together" if stores is LongWay else order)
        case.broker.engine.start("w", run_id="r")
        case.broker.box.drives.clear()
        store = case.broker.store
        results = at_once(
            lambda case=case, meeting=meeting, store=store: drive(case, meeting.first(store, call)),
            lambda case=case, meeting=meeting, store=store: other(case, meeting.second(store, "transact")),
        )
        for result in results:
            if isinstance(result, BaseException) and not isinstance(result, errors.LeaseLostError):
                raise result
        assert meeting.took_place
        if other is pause:
            case.broker.engine.unpause("r")
        case.settle()
        assert case.broker.engine.snapshot("r").status == ("completed" if other is pause else "cancelled")
        assert sorted(case.bodies) == (["a", "b"] if other is pause else [])
        _forget(case)


def test_one_message_to_many_workers_is_one_body():
    for _ in range(REPEATS):
        case = Case()
        case.start()
        results = at_once(*[lambda case=case: case.run("a")] * 6)
        assert sorted(map(bool, results)) == [False] * 5 + [True]
        case.run("b")
        case.settle()
        assert case.bodies == ["a", "b"]
        _forget(case)


def test_two_workers_end_the_time_of_one_attempt_once():
    for _ in range(REPEATS):
        broker, go = Broker(store=DjangoEventStore()), threading.Event()

        @step("hangs", timeout=timedelta(milliseconds=100), retry=RetryPolicy.none().continue_workflow_on_failure())
        def hangs(go: Any = go) -> None:
            go.wait(30)

        @workflow("w")
        def w(ctx: Any) -> Any:
            return ctx.complete() if ctx.step_failed("a") else ctx.schedule_steps([ctx.step(x, "hangs") for x in "ab"])

        broker.engine.start("w", run_id="r")
        broker.drive()
        broker.box.steps.clear()
        at_once(*[lambda broker=broker: broker.run(RunStep("r", "a", 1), engine=broker.worker())] * 4)
        go.set()
        assert broker.types().count("step_failed") == 1
        broker.engine.force_cancel("r")
        _clear()


def _forget(case: Case) -> None:
    assert case.broker.store.row("r").status.is_terminal
    _clear()


def _clear() -> None:
    """Begin anew: the next repeat has the same run, and registers its own code."""
    registry.steps._entries.clear()
    registry.workflows._entries.clear()
    with connection.cursor() as cursor:
        for model in (Event, StepExecution, Run):
            cursor.execute(f"DELETE FROM {model._meta.db_table}")
