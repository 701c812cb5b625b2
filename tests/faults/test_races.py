"""An answer that meets the park, the deadline, a cancellation and the end of its run, in every order, again and again.

Whoever wins, the log replays cleanly, the caller's answer is true, and nothing is left that nobody looks at.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from flow_app import workflow
from flow_app.authoring.runtime import RegistryRuntime
from flow_app.conf import Options
from flow_app.core.tasks import FlowTask
from flow_app.engine import FlowEngine
from flow_app.errors import HookConflictError, RunTerminalError
from flow_app.store import DjangoEventStore
from flow_app.testing import FakeClock
from tests.faults.meeting import ORDERS, Meeting
from tests.store.support import at_once

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.slow]

REPEATS = 200
DEADLINE = timedelta(minutes=10)


class Nowhere:
    """Messages are lost: what the rows say must do."""

    def has_route(self, build: str | None) -> bool:
        return True

    def dispatch(self, task: FlowTask) -> None: ...

    def dispatch_for_build(self, build: str | None, task: FlowTask) -> None: ...


def engine_on(store: Any) -> FlowEngine:
    return FlowEngine(store, RegistryRuntime(), options=Options(), secrets=("secret",), dispatcher=Nowhere())


@workflow("races.approval")
def approval(ctx: Any) -> Any:
    """An answer or its deadline; a timer ends the run in any case."""
    if ctx.cancellation_request is not None:
        return ctx.cancel()
    if ctx.hook_received("h"):
        return ctx.complete(ctx.hook_payload("h"))
    if ctx.hook_expired("h") or ctx.wait_completed("patience"):
        return ctx.complete("nobody answered")
    if not ctx.wait_scheduled("patience"):
        return ctx.wait_until("patience", ctx.input["patience"])
    return ctx.create_hook("h", expires_at=ctx.input["until"])


class Race:
    """One run, a driver and a caller, with the world as it is before they meet."""

    def __init__(self, index: int) -> None:
        self.run_id = f"r{index}"
        self.meeting = Meeting(ORDERS[index % len(ORDERS)])
        self.clock = FakeClock()
        self.plain = engine_on(DjangoEventStore(clock=self.clock))
        self.clock_of_driver = FakeClock()

    def start(self, *, until: timedelta = DEADLINE, patience: timedelta = 2 * DEADLINE) -> None:
        now = self.clock.now()
        self.plain.start("races.approval", {"until": now + until, "patience": now + patience}, run_id=self.run_id)

    def driver(self, call: str) -> FlowEngine:
        return engine_on(self.meeting.first(DjangoEventStore(clock=self.clock_of_driver), call))

    def caller(self, call: str) -> FlowEngine:
        return engine_on(self.meeting.second(DjangoEventStore(clock=self.clock), call))

    def run(self, first: Callable[[], Any], second: Callable[[], Any]) -> list[Any]:
        results = at_once(first, second)
        assert self.meeting.took_place
        return results

    @property
    def types(self) -> list[str]:
        return [item.type for item in self.plain.history(self.run_id)]

    def finish(self) -> Any:
        """What the rows say is left to do is done; then the run has ended, and its log is whole."""
        for _ in range(5):
            row = self.plain.row(self.run_id)
            if row.status.is_terminal:
                break
            assert row.wake_at is not None, f"nobody looks at it any more: {row}"
            self.clock.move_to(max(self.clock.now(), self.clock_of_driver.now(), row.wake_at))
            self.plain.resume_scheduled_run(self.run_id)
        snapshot = self.plain.snapshot(self.run_id)
        assert snapshot.status.is_terminal
        sequences = [item.sequence for item in self.plain.history(self.run_id)]
        assert sequences == list(range(1, len(sequences) + 1))
        assert sum(kind in ("run_completed", "run_cancelled") for kind in self.types) == 1
        return snapshot.output

    def check_answer(self, result: Any, *refusals: type[Exception]) -> bool:
        """True and recorded, or refused for a reason that may be and not recorded."""
        recorded = self.types.count("hook_received")
        assert result is True or isinstance(result, refusals), repr(result)
        assert recorded == (result is True)
        return result is True


@pytest.mark.parametrize("part", range(4))
def test_an_answer_meets_the_park(part: int) -> None:
    for index in range(part, REPEATS, 4):
        race = Race(index)
        race.start()
        driver, caller = race.driver("park"), race.caller("transact")
        _, answer = race.run(
            lambda: driver.resume_scheduled_run(race.run_id),  # noqa: B023
            lambda: caller.resume_hook(race.run_id, "h", "yes"),  # noqa: B023
        )
        assert race.check_answer(answer)
        assert race.finish() == "yes"


@pytest.mark.parametrize("part", range(4))
def test_an_answer_meets_its_deadline(part: int) -> None:
    """The caller's clock is just before it, the driver's just behind: the log decides."""
    for index in range(part, REPEATS, 4):
        race = Race(index)
        race.start()
        race.plain.resume_scheduled_run(race.run_id)
        race.clock_of_driver.advance(DEADLINE)
        driver, caller = race.driver("append"), race.caller("transact")
        _, answer = race.run(
            lambda: driver.resume_scheduled_run(race.run_id),  # noqa: B023
            lambda: caller.resume_hook(race.run_id, "h", "yes"),  # noqa: B023
        )
        answered = race.check_answer(answer, HookConflictError, RunTerminalError)
        assert race.finish() == ("yes" if answered else "nobody answered")
        assert race.types.count("hook_expired") == (not answered)


@pytest.mark.parametrize("part", range(4))
def test_an_answer_meets_a_cancellation(part: int) -> None:
    for index in range(part, REPEATS, 4):
        race = Race(index)
        race.start()
        race.plain.resume_scheduled_run(race.run_id)
        canceller, caller = race.driver("transact"), race.caller("transact")
        cancelled, answer = race.run(
            lambda: canceller.request_cancellation(race.run_id, "no longer"),  # noqa: B023
            lambda: caller.resume_hook(race.run_id, "h", "yes"),  # noqa: B023
        )
        race.check_answer(answer, HookConflictError)
        assert not isinstance(cancelled, Exception)
        race.finish()
        assert race.types[-1] == "run_cancelled"


@pytest.mark.parametrize("part", range(4))
def test_an_answer_meets_the_end_of_its_run(part: int) -> None:
    for index in range(part, REPEATS, 4):
        race = Race(index)
        race.start(until=3 * DEADLINE, patience=DEADLINE)
        race.plain.resume_scheduled_run(race.run_id)
        race.clock_of_driver.advance(DEADLINE)
        driver, caller = race.driver("append"), race.caller("transact")
        _, answer = race.run(
            lambda: driver.resume_scheduled_run(race.run_id),  # noqa: B023
            lambda: caller.resume_hook(race.run_id, "h", "yes"),  # noqa: B023
        )
        answered = race.check_answer(answer, RunTerminalError)
        assert race.finish() == ("yes" if answered else "nobody answered")
