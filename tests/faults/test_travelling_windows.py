"""Steps that travel: whatever write a worker, a driver or a scheduler dies at, the run comes to the same end.

The model is a life in one process, in memory: a workflow cannot tell where its steps ran.
"""

from __future__ import annotations

from collections import defaultdict
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection

from flow_app import RetryPolicy, step, workflow
from flow_app.core.context import StepContext
from flow_app.dispatch import FlowScheduler
from flow_app.errors import LeaseLostError
from flow_app.models import StepExecution
from flow_app.store import DjangoEventStore, InMemoryEventStore
from flow_app.testing import FakeClock
from tests.engine.mailbox import Mailbox
from tests.faults.mortal import Fate, Host
from tests.faults.test_crash_windows import single_deaths
from tests.faults.workflows import Ledger

pytestmark = pytest.mark.django_db(transaction=True)


def register(ledger: Ledger) -> None:
    @step("act", retry=RetryPolicy.fixed(3))
    def act(ctx: StepContext) -> str:
        ledger.note(ctx)
        if ctx.attempt < ctx.input:
            raise ValueError("not yet")
        return f"{ctx.step_id}{ctx.attempt}"

    @step("later", retry=RetryPolicy.fixed(2, timedelta(seconds=5)))
    def later(ctx: StepContext) -> str:
        ledger.note(ctx)
        if ctx.attempt == 1:
            raise ValueError("later")
        return "late"

    @workflow("far")
    def far(ctx: Any) -> Any:
        if ctx.cancellation_request is not None:
            if not ctx.step_completed("clean"):
                return ctx.schedule_step("clean", act, 1)
            return ctx.cancel()
        if not all(ctx.step_completed(step_id) for step_id in ("a", "b", "l")):
            return ctx.schedule_steps([ctx.step("a", act, 1), ctx.step("b", act, 2), ctx.step("l", later)])
        if not ctx.step_completed("plain"):
            return ctx.schedule_step("plain", act, 2)
        if not ctx.hook_received("go"):
            return ctx.create_hook("go")
        return ctx.complete([ctx.step_output(step_id) for step_id in ("a", "b", "l", "plain")])


class Life:
    """One run, its messages, and processes that die by one fate."""

    def __init__(
        self,
        store: Any,
        *,
        run_id: str,
        fate: Fate,
        travels: bool = True,
        cancels: bool = False,
        shared: bool = False,
    ) -> None:
        self.ledger = Ledger()
        self.host = Host(store, store.clock, fate, run_id=run_id)
        self.cancels = cancels
        self.box = Mailbox(shared=shared) if travels else None
        register(self.ledger)
        self.host.live_through(lambda engine, host: self._script(engine))
        self.history = store.history(run_id)
        self.row = store.row(run_id)

    def _script(self, engine: Any) -> None:
        if self.box is not None:
            engine.services.dispatcher = self.box
        engine.start("far", run_id=self.host.run_id)
        for _ in range(40):
            self._work_off(engine)
            if self.host.has_ended():
                return
            if engine.list_active_hooks():
                if self.cancels:
                    engine.request_cancellation(self.host.run_id)
                else:
                    engine.resume_hook(self.host.run_id, "go")
            FlowScheduler(engine).tick()
            self.host.clock.advance(timedelta(seconds=31))
        raise AssertionError(f"nothing moves any more: {engine.store.row(self.host.run_id)}")

    def _work_off(self, engine: Any) -> None:
        """A message is gone once it was delivered, whatever became of the worker."""
        box = self.box
        while box is not None and (box.steps or box.drives):
            try:
                if box.steps:
                    message = box.steps.pop(0)
                    engine.run_step(message.run_id, message.step_id, message.attempt)
                else:
                    engine.resume_scheduled_run(box.drives.pop(0))
            except LeaseLostError:
                pass

    @property
    def what_happened(self) -> dict[str, list[str]]:
        happened: dict[str, list[str]] = defaultdict(list)
        for item in self.history:
            subject = next((item.data[name] for name in ("step_id", "hook_id") if name in item.data), "run")
            happened[subject].append(f"{item.type}/{item.data.get('attempt', '')}")
        return happened


@pytest.mark.parametrize("cancels", [False, True], ids=["to-the-end", "to-a-cancellation"])
@pytest.mark.parametrize("shared", [False, True], ids=["message-by-message", "going-on"])
def test_every_death(cancels: bool, shared: bool) -> None:
    model = Life(InMemoryEventStore(clock=FakeClock()), run_id="r", fate=Fate(), travels=False, cancels=cancels)

    def live(run_id: str, deaths: frozenset[tuple[int, str]] = frozenset()) -> Life:
        store = DjangoEventStore(clock=FakeClock())
        return Life(store, run_id=run_id, fate=Fate(deaths), cancels=cancels, shared=shared)

    whole = live("whole")
    writes = whole.host.fate.writes
    assert {"append_and_send", "take_step", "complete_step", "resend_step"} <= set(writes)
    if connection.vendor != "postgresql":
        assert {"send_steps", "claim_step", "close_step"} <= set(writes)
    lives = [whole]
    lives += [live(f"r{index}", deaths) for index, deaths in enumerate(single_deaths(len(writes)))]
    for life in lives:
        kills = life.host.kills
        assert kills == len(life.host.fate.deaths)
        assert life.what_happened == model.what_happened
        assert (life.history[-1].type, life.history[-1].data) == (model.history[-1].type, model.history[-1].data)
        assert set(life.ledger.calls) == set(model.ledger.calls)
        assert life.ledger.calls.total() <= model.ledger.calls.total() + kills
        assert (life.row.steps_out, life.row.wake_at, life.row.lease_expires_at) == (0, None, None)
    assert not StepExecution.objects.exists()
