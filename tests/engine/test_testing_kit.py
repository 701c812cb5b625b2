"""The test kit, used as a project would use it: in Django's own test cases."""

from __future__ import annotations

from contextlib import AbstractContextManager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import transaction
from django.test import TestCase, TransactionTestCase

from flow_app import RetryPolicy, step, workflow
from flow_app.authoring import registry
from flow_app.core.context import StepContext
from flow_app.errors import RuntimeFailureError
from flow_app.testing import FlowTestEngine

START = datetime(2031, 5, 6, tzinfo=UTC)


class KitTests:
    """What holds in both kinds of test cases."""

    def setUp(self) -> None:
        self._isolated: list[AbstractContextManager[None]] = [
            registry.workflows.isolated(),
            registry.steps.isolated(),
        ]
        for block in self._isolated:
            block.__enter__()
        self.keys: list[str] = []
        self._register()
        self.flow = FlowTestEngine(now=START)

    def tearDown(self) -> None:
        for block in self._isolated:
            block.__exit__(None, None, None)

    def _register(self) -> None:
        @step("ship", retry=RetryPolicy.fixed(3, timedelta(hours=1)))
        def ship(ctx: StepContext) -> str:
            self.keys.append(f"{ctx.idempotency_key}/{ctx.attempt}")
            if ctx.attempt == 1:
                raise ValueError("no lorry")
            return "shipped"

        @workflow("order")
        def order(ctx: Any) -> Any:
            if not ctx.wait_completed("cooling-off"):
                return ctx.wait_until("cooling-off", START + timedelta(days=14))
            if not ctx.hook_received("decision"):
                return ctx.create_hook("decision")
            if not ctx.step_completed("ship"):
                return ctx.schedule_step("ship", ship)
            return ctx.complete([ctx.hook_payload("decision"), ctx.step_output("ship")])

        @workflow("broken")
        def broken(ctx: Any) -> Any:
            raise LookupError("no such order")

    def test_stop_by_stop(self) -> None:
        flow = self.flow
        run_id = flow.start("order")
        flow.advance(timedelta(days=13))
        assert list(flow.snapshot(run_id).hooks) == []
        flow.advance(timedelta(days=1))
        assert flow.snapshot(run_id).hooks["decision"].status == "active"
        assert flow.resume(run_id, "decision", "yes").status == "suspended"
        flow.advance(timedelta(minutes=59))
        assert len(self.keys) == 1
        flow.advance(timedelta(minutes=1))
        assert flow.snapshot(run_id).output == ["yes", "shipped"]
        assert flow.clock.now() == START + timedelta(days=14, hours=1)

    def test_to_the_end(self) -> None:
        run_id = self.flow.start("order")
        with pytest.raises(AssertionError, match="decision"):
            self.flow.run_to_end(run_id)
        self.flow.resume(run_id, "decision")
        assert self.flow.run_to_end(run_id).output == [None, "shipped"]

    def test_what_comes_due_on_the_way_is_driven_at_its_own_time(self) -> None:
        run_id = self.flow.start("order")
        self.flow.advance(timedelta(days=365))
        created = next(item for item in self.flow.history(run_id) if item.type == "hook_created")
        assert created.recorded_at == START + timedelta(days=14)
        assert self.flow.clock.now() == START + timedelta(days=365)

    def test_a_start_inside_atomic_is_driven_by_the_next_advance(self) -> None:
        with transaction.atomic():
            run_id = self.flow.start("order")
        self.flow.advance()
        assert "cooling-off" in self.flow.snapshot(run_id).waits

    def test_an_error_reaches_the_test(self) -> None:
        with pytest.raises(RuntimeFailureError, match="no such order"):
            self.flow.start("broken", run_id="b")
        with pytest.raises(RuntimeFailureError, match="no such order"):
            self.flow.advance(timedelta(minutes=1))

    def test_a_crash_after_a_step(self) -> None:
        run_id = self.flow.start("order")
        self.flow.advance(timedelta(days=14))
        self.flow.resume(run_id, "decision")
        with self.flow.crash_after("ship"):
            self.flow.advance(timedelta(hours=1))
        assert self.flow.snapshot(run_id).steps["ship"].status == "running"
        assert self.flow.run_to_end(run_id).status == "completed"
        assert self.keys == [f"{run_id}/ship/1", f"{run_id}/ship/2", f"{run_id}/ship/2"]

    def test_a_crash_that_does_not_come_is_reported(self) -> None:
        with pytest.raises(AssertionError, match="did not run"), self.flow.crash_after("ship"):
            self.flow.start("order")


class InATestCase(KitTests, TestCase):
    pass


class InATransactionTestCase(KitTests, TransactionTestCase):
    pass
