"""What every verb needs, in one place: the ports, the options, and how an append is announced."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, cast
from uuid import uuid4

from flow_app.conf import Options
from flow_app.core.context import Secrets
from flow_app.core.events import Event, EventEnvelope
from flow_app.core.ports import (
    EventStore,
    FlowTaskDispatcher,
    NewEvent,
    Observer,
    RunChange,
    RunIdentity,
    RunRow,
    Runtime,
    SharedWorkers,
    StepDispatcher,
)
from flow_app.core.remote import StepStore
from flow_app.core.spec import RuntimeBuildCompatibility
from flow_app.core.tasks import DriveRun, FlowTask, RunStep
from flow_app.engine.tracebacks import meta_of
from flow_app.errors import RuntimeBuildUnavailableError
from flow_app.signals import event_recorded

logger = logging.getLogger("flow_app.engine")

Meta = Mapping[str, Any]


@dataclass(slots=True)
class Services:
    """The engine's ports and options. ``dispatcher`` is set once it exists: an inline one needs the engine first."""

    store: EventStore
    runtime: Runtime
    options: Options = field(default_factory=Options)
    builds: RuntimeBuildCompatibility | None = None
    secrets: Secrets = ()
    observers: tuple[Observer, ...] = ()
    dispatcher: FlowTaskDispatcher | None = None

    @property
    def step_store(self) -> StepStore | None:
        """The store, if it can keep steps that travel."""
        return cast("StepStore", self.store) if hasattr(self.store, "send_steps") else None

    @property
    def sends_steps(self) -> bool:
        """Do steps travel here: can the dispatcher send them, and the store keep them?"""
        return hasattr(self.dispatcher, "dispatch_step") and hasattr(self.store, "send_steps")

    def same_workers(self, run_id: str, build: str | None) -> bool:
        """Would a step of this run, and its drive, be sent to the very workers that get the other one?"""
        dispatcher: object = self.dispatcher
        try:
            return isinstance(dispatcher, SharedWorkers) and dispatcher.same_workers(run_id, build)
        except Exception:  # the project's own routing: all is committed, and what is sent says so again
            logger.exception("Run %s: where its messages go cannot be said", run_id, extra={"run_id": run_id})
            return False

    def wake_steps(self, row: RunRow) -> None:
        """Have the scheduler send at once what is out and no worker has."""
        store = self.step_store
        if row.steps_out and store is not None:
            store.wake_steps(row)

    # --- builds -----------------------------------------------------------------------------------------------------

    def supports(self, build: str | None) -> bool:
        """May this process run code for the build? Without configured builds, unpinned runs only."""
        return build is None if self.builds is None else self.builds.supports(build)

    def admit(self, run_id: str, build: str | None, *, or_routed: bool = False) -> None:
        """Raise RuntimeBuildUnavailableError unless this process, or with ``or_routed`` a routed worker, may run it."""
        if self.supports(build):
            return
        if or_routed and self.dispatcher is not None and self.dispatcher.has_route(build):
            return
        current = None if self.builds is None else self.builds.current
        raise RuntimeBuildUnavailableError(run_id, required=build, current=current)

    # --- appending --------------------------------------------------------------------------------------------------

    def new_events(self, events: Sequence[Event], *, meta: Meta | None = None, traceback: str = "") -> list[NewEvent]:
        now = self.store.clock.now()
        return [NewEvent(event, uuid4(), now, meta_of(event, meta, traceback)) for event in events]

    def append(
        self,
        row: RunRow,
        events: Sequence[Event],
        *,
        change: RunChange,
        meta: Meta | None = None,
        traceback: str = "",
    ) -> RunRow:
        """Append for an outside writer, who holds the row's lock and no lease, and tell the observers."""
        new = self.new_events(events, meta=meta, traceback=traceback)
        moved = self.store.append(row, new, change=change)
        self.announce(row, new, after=row.last_sequence)
        return moved

    def announce(self, run: RunRow | RunIdentity, events: Sequence[NewEvent], *, after: int) -> None:
        """Tell observers and the signal of events that were appended after a sequence, once they are committed."""
        if not self.observers and not (event_recorded.receivers and event_recorded.has_listeners(run.workflow)):
            return
        envelopes = [
            EventEnvelope(run.run_id, sequence, new.event_id, new.recorded_at, new.event, new.meta)
            for sequence, new in enumerate(events, start=after + 1)
        ]
        self.store.on_commit(partial(self._tell, run.workflow, envelopes))

    def _tell(self, workflow: str, envelopes: Sequence[EventEnvelope]) -> None:
        for envelope in envelopes:
            for observer in self.observers:
                try:
                    observer.on_event(envelope)
                except Exception:
                    logger.exception(
                        "Observer %r failed on %s", observer, envelope.key, extra={"run_id": envelope.run_id}
                    )
            event_recorded.send_robust(sender=workflow, envelope=envelope)

    # --- dispatching -------------------------------------------------------------------------------------------------

    def drives_in_call(self, act: Callable[[], object]) -> bool:
        """Drive in this very call, if the dispatcher is one that does so, and free; False, and nothing done, if not."""
        in_call = getattr(self.dispatcher, "in_call", None)
        return in_call is not None and in_call(act)

    def dispatch_drive(self, run_id: str, build: str | None) -> None:
        """Ask for the run to be driven: now, or once the caller's transaction commits."""
        if self.dispatcher is None:
            return
        task = DriveRun(run_id)
        if self.store.in_caller_transaction():
            self.store.on_commit(partial(self.dispatch_quietly, build, task))
        else:
            self.dispatcher.dispatch_for_build(build, task)

    def dispatch_step_quietly(self, step: RunStep, *, build: str | None, queue: str | None) -> None:
        """The same for one attempt of a step: its own ``wake_at`` brings it back."""
        dispatcher: object = self.dispatcher
        if not isinstance(dispatcher, StepDispatcher):
            return
        try:
            dispatcher.dispatch_step(step, build=build, queue=queue)
        except Exception:
            labels = {"run_id": step.run_id, "step_id": step.step_id, "attempt": step.attempt}
            logger.exception(
                "Dispatching step %s of run %s failed after commit", step.step_id, step.run_id, extra=labels
            )

    def dispatch_quietly(self, build: str | None, task: FlowTask) -> None:
        """All is committed, and an error is nobody's answer any more: the run's ``wake_at`` brings it back."""
        if self.dispatcher is None:
            return
        try:
            self.dispatcher.dispatch_for_build(build, task)
        except Exception:
            run_id = task.explicit_run_id
            logger.exception("Dispatching run %s failed after commit", run_id, extra={"run_id": run_id})
