"""A broker in the test's hand: it keeps every message, and delivers each when, and as often, as the test says."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from random import Random
from typing import Any

from flow_app.authoring.runtime import RegistryRuntime
from flow_app.conf import Options
from flow_app.core.ports import EventStore
from flow_app.core.tasks import FlowTask, RunStep
from flow_app.dispatch import FlowScheduler
from flow_app.engine import FlowEngine
from flow_app.errors import LeaseLostError
from flow_app.models import StepExecution
from flow_app.store import DjangoEventStore
from flow_app.testing import FakeClock


@dataclass
class Mailbox:
    """A dispatcher of runs and of steps."""

    drives: list[str] = field(default_factory=list)
    steps: list[RunStep] = field(default_factory=list)
    queues: list[str | None] = field(default_factory=list)
    builds: set[str | None] = field(default_factory=lambda: {None})
    shared: bool = False  # do drives and steps go to the same workers?

    def dispatch(self, task: FlowTask) -> None:
        self.drives.append(task.explicit_run_id or "")

    def has_route(self, build: str | None) -> bool:
        return build in self.builds

    def dispatch_for_build(self, build: str | None, task: FlowTask) -> None:
        self.dispatch(task)

    def same_workers(self, run_id: str, build: str | None) -> bool:
        return self.shared

    def dispatch_step(self, step: RunStep, *, build: str | None, queue: str | None) -> None:
        self.steps.append(step)
        self.queues.append(queue)


class Died(BaseException):
    """The end of a worker's process: a body raises it, and no ``except Exception`` sees it."""


class Broker:
    """One engine, as all workers have it, and the mailbox in front of them."""

    def __init__(self, *, clock: FakeClock | None = None, store: EventStore | None = None, **options: Any) -> None:
        self.clock = clock or FakeClock()
        self.box = Mailbox()
        self.engine = self.worker(store or DjangoEventStore(clock=self.clock), **options)
        self.store: Any = self.engine.store

    def worker(self, store: EventStore | None = None, *, dispatcher: Any = None, **options: Any) -> FlowEngine:
        """Another worker process of the same deployment."""
        made = FlowEngine(store or self.store, RegistryRuntime(), options=Options(**options), secrets=("secret",))
        made.services.dispatcher = dispatcher or self.box
        return made

    # --- delivering ---------------------------------------------------------------------------------------------------

    def drive(self, times: int = 1) -> None:
        """Deliver the oldest hints to drive."""
        for _ in range(times):
            self.engine.resume_scheduled_run(self.box.drives.pop(0))

    def take(self, step_id: str) -> RunStep:
        """Take a step's message out of the mailbox."""
        message = next(step for step in self.box.steps if step.step_id == step_id)
        self.box.steps.remove(message)
        return message

    def deliver(self, *step_ids: str) -> list[bool]:
        return [self.run(self.take(step_id)) for step_id in step_ids]

    def run(self, message: RunStep, *, engine: FlowEngine | None = None) -> bool:
        return (engine or self.engine).run_step(message.run_id, message.step_id, message.attempt)

    def tick(self) -> None:
        FlowScheduler(self.engine).tick()

    def work_off(self, *, random: Random | None = None, copies: int = 1) -> None:
        """Deliver everything, each message ``copies`` times, in the order sent or in any, until nothing is left."""
        while self.box.drives or self.box.steps:
            messages: list[Callable[[], object]] = []
            for run_id in self.box.drives:
                messages += [lambda run_id=run_id: self.engine.resume_scheduled_run(run_id)] * copies
            for step in self.box.steps:
                messages += [lambda step=step: self.run(step)] * copies
            self.box.drives.clear()
            self.box.steps.clear()
            if random is not None:
                random.shuffle(messages)
            for deliver in messages:
                with suppress(LeaseLostError):
                    deliver()

    def pass_time(self, seconds: float) -> None:
        self.clock.advance(timedelta(seconds=seconds))
        self.tick()

    # --- looking ------------------------------------------------------------------------------------------------------

    def out(self) -> list[str]:
        return sorted(StepExecution.objects.values_list("step_id", flat=True))

    def types(self, run_id: str = "r") -> list[str]:
        return [event.type for event in self.engine.history(run_id)]
