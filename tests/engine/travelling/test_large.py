"""Batches of many members, and of large ones."""

from __future__ import annotations

from typing import Any

import pytest

from flow_app import step, workflow
from flow_app.conf import Options
from flow_app.dispatch import InlineDispatcher
from flow_app.models import Run
from tests.engine.mailbox import Broker

pytestmark = pytest.mark.django_db(transaction=True)

#: Just under FLOW_APP["MAX_PAYLOAD"], in text that MariaDB quotes.
LARGE = "'" * (Options().max_payload - 20)


@pytest.fixture
def large() -> None:
    """Workflow ``large``: more at once than MariaDB takes in one statement."""

    @step("echo")
    def echo(text: str) -> str:
        return text

    @workflow("large")
    def run(ctx: Any) -> Any:
        ids = [f"s{n}" for n in range(18)]
        if not all(ctx.step_completed(step_id) for step_id in ids):
            return ctx.schedule_steps([ctx.step(step_id, echo, LARGE) for step_id in ids])
        return ctx.complete(all(ctx.step_output(step_id) == LARGE for step_id in ids))


def test_a_batch_of_large_inputs_is_sent(broker, large):
    broker.engine.start("large", run_id="r")
    broker.work_off()
    assert broker.engine.snapshot("r").output is True


def test_a_batch_of_large_inputs_runs_in_the_drive(broker, large):
    engine = broker.engine
    engine.services.dispatcher = InlineDispatcher(engine)
    engine.start("large", run_id="r")
    assert engine.snapshot("r").output is True


def test_a_history_of_large_events_is_imported(broker, large):
    broker.engine.start("large", run_id="r")
    broker.work_off()
    history = broker.engine.history("r")
    elsewhere = [envelope.to_wire() | {"run_id": "again"} for envelope in history]
    broker.engine.import_run([type(history[0]).from_wire(wire) for wire in elsewhere])
    assert broker.engine.snapshot("again").output is True


def test_a_thousand_members(broker: Broker):
    @step("job")
    def job(n: int) -> int:
        return n

    @workflow("w")
    def w(ctx: Any) -> Any:
        ids = [f"s{n}" for n in range(1000)]
        if not all(ctx.step_completed(step_id) for step_id in ids):
            return ctx.schedule_steps([ctx.step(step_id, job, n) for n, step_id in enumerate(ids)])
        return ctx.complete(sum(ctx.step_output(step_id) for step_id in ids))

    broker.engine.start(w, run_id="r")
    broker.drive()
    assert len(broker.box.steps) == Run.objects.get().steps_out == 1000
    broker.work_off()
    assert broker.engine.snapshot("r").output == sum(range(1000))
    assert broker.out() == []
