from __future__ import annotations

import time
from datetime import timedelta
from typing import Any

import pytest

from flow_app import step, workflow
from flow_app.authoring.runtime import RegistryRuntime
from flow_app.conf import Options
from flow_app.core.tasks import RunStep
from flow_app.dispatch import InlineDispatcher
from flow_app.engine import FlowEngine
from flow_app.errors import LeaseLostError
from flow_app.models import StepExecution
from flow_app.store import DjangoEventStore, InMemoryEventStore
from tests.engine.logbook import alone
from tests.engine.mailbox import Broker

_LEASE = timedelta(milliseconds=600)


@pytest.fixture(params=["memory", pytest.param("django", marks=pytest.mark.django_db(transaction=True))])
def real_store(request: pytest.FixtureRequest) -> Any:
    """Leases are kept in real time, so these stores have their real clocks."""
    return InMemoryEventStore() if request.param == "memory" else DjangoEventStore()


def _wait_for(condition: Any) -> bool:
    """Watch for something another thread does; give up after long enough to be sure."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        if condition():
            return True
    return False


def test_a_step_that_outlasts_its_lease_keeps_it(real_store: Any) -> None:
    engine = FlowEngine(real_store, RegistryRuntime(), options=Options(lease=_LEASE))
    engine.services.dispatcher = InlineDispatcher(engine)
    bodies: list[int] = []

    @step("slow")
    def slow() -> bool:
        bodies.append(1)
        first = real_store.row("r").lease_expires_at
        assert _wait_for(lambda: real_store.row("r").lease_expires_at > first + _LEASE)
        return real_store.claim("r", lease=_LEASE) is None

    engine.start(alone(slow), run_id="r")
    assert engine.snapshot("r").output is True
    assert bodies == [1]


def test_a_body_learns_that_its_lease_was_taken_over(real_store: Any) -> None:
    engine = FlowEngine(real_store, RegistryRuntime(), options=Options(lease=_LEASE))
    seen: list[bool] = []

    @step("slow")
    def slow(ctx: Any) -> None:
        row = real_store.row("r")
        assert not ctx.cancelled
        real_store.park(row, change={"lease_expires_at": None})
        assert real_store.claim("r", lease=timedelta(minutes=1)) is not None
        seen.append(_wait_for(lambda: ctx.cancelled))

    @workflow("w")
    def w(ctx: Any) -> Any:
        return ctx.schedule_step("s", slow)

    engine.start("w", run_id="r")
    with pytest.raises(Exception, match="lease with epoch 1"):
        engine.drive("r")
    assert seen == [True]


@pytest.mark.django_db(transaction=True)
def test_a_step_that_travels_and_outlasts_its_lease_keeps_it() -> None:
    broker = Broker(store=DjangoEventStore(), lease=_LEASE)
    bodies: list[int] = []

    def expires_at() -> Any:
        return StepExecution.objects.get().lease_expires_at

    @step("slow", dispatch="task")
    def slow() -> bool:
        bodies.append(1)
        first = expires_at()
        assert _wait_for(lambda: expires_at() > first + _LEASE)
        return broker.run(RunStep("r", "s", 1))

    broker.engine.start(alone(slow), run_id="r")
    broker.work_off()
    assert broker.engine.snapshot("r").output is False
    assert bodies == [1]


@pytest.mark.django_db(transaction=True)
def test_a_body_that_travels_learns_that_nobody_waits_for_it() -> None:
    broker = Broker(store=DjangoEventStore(), lease=_LEASE)
    seen: list[bool] = []

    @step("slow", dispatch="task")
    def slow(ctx: Any) -> None:
        assert not ctx.cancelled
        broker.engine.force_cancel("r")
        seen.append(_wait_for(lambda: ctx.cancelled))

    @workflow("w")
    def w(ctx: Any) -> Any:
        return ctx.schedule_step("s", slow)

    broker.engine.start("w", run_id="r")
    broker.drive()
    with pytest.raises(LeaseLostError):
        broker.deliver("s")
    assert seen == [True]
