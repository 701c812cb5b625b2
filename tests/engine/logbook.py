"""Short ways to say what a log holds, and to let an engine crash, queue its work or be one of two builds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from flow_app import Command, WorkflowContext, workflow
from flow_app.authoring.runtime import RegistryRuntime
from flow_app.authoring.steps import StepDefinition
from flow_app.authoring.workflows import WorkflowDefinition
from flow_app.core.events import EventEnvelope
from flow_app.core.ports import EventStore, NewEvent, RunRow
from flow_app.core.spec import RuntimeBuildCompatibility
from flow_app.core.tasks import FlowTask
from flow_app.dispatch import InlineDispatcher
from flow_app.engine import FlowEngine
from flow_app.errors import RuntimeBuildRouteNotFoundError, StoreError

_SHORT = {
    "run_created": "C", "run_started": "S", "run_completed": "RC", "run_failed": "RF", "run_cancelled": "RX",
    "run_cancellation_requested": "CR", "run_timed_out": "RT", "run_retry_exhausted": "RE", "run_host_shutdown": "RH",
    "run_progress_recorded": "PG", "child_operation_linked": "CH", "step_created": "sc", "step_started": "ss",
    "step_completed": "sk", "step_retrying": "sr", "step_failed": "sf", "wait_created": "wc", "wait_completed": "wk",
    "hook_created": "hc", "hook_received": "hr", "hook_disposed": "hd", "hook_expired": "hx",
}  # fmt: skip
_LONG = {short: event_type for event_type, short in _SHORT.items()}
_SUBJECTS = ("step_id", "wait_id", "hook_id")

#: What :func:`sleep_of` says of a paused run.
ASLEEP = (None, "paused")


def sleep_of(engine: FlowEngine, run_id: str = "r1") -> tuple[datetime | None, str]:
    """When somebody looks at the run again, and why."""
    row = engine.row(run_id)
    return row.wake_at, row.wake_reason


def alone(step: StepDefinition, given: object = None) -> WorkflowDefinition:
    """Workflow ``w``: the step alone, as ``s``, and its output is the run's."""

    @workflow("w")
    def w(ctx: WorkflowContext) -> Command:
        return ctx.complete(ctx.step_output("s")) if ctx.step_completed("s") else ctx.schedule_step("s", step, given)

    return w


def story(engine: FlowEngine, run_id: str = "r1") -> str:
    """The whole history in one line, as the scenarios write it: ``C S sc:a ss:a#1 sk:a RC``."""
    return " ".join(map(_word, engine.history(run_id)))


def _word(envelope: EventEnvelope) -> str:
    data = envelope.data
    subject = next((f":{data[name]}" for name in _SUBJECTS if name in data), "")
    attempt = f"#{data['attempt']}" if "attempt" in data else ""
    return _SHORT[envelope.type] + subject + attempt


def wire_history(words: str, *, run_id: str = "r1", **fields: dict[str, Any]) -> list[EventEnvelope]:
    """A history as another engine would hand it over. ``fields`` adds to all events of one short name."""
    return [
        EventEnvelope.from_wire(
            {
                "run_id": run_id,
                "sequence": sequence,
                "event_id": str(UUID(int=sequence)),
                "timestamp": f"2029-12-31T00:00:{sequence:02}Z",
                "event": _wire_event(word, fields),
            }
        )
        for sequence, word in enumerate(words.split(), start=1)
    ]


def _wire_event(word: str, fields: dict[str, dict[str, Any]]) -> dict[str, Any]:
    head, _, attempt = word.partition("#")
    short, _, subject = head.partition(":")
    event_type = _LONG[short]
    wire: dict[str, Any] = {"type": event_type}
    if subject:
        wire["step_id" if event_type.startswith(("step", "run")) else f"{event_type[:4]}_id"] = subject
    if attempt:
        wire["attempt"] = int(attempt)
    if short == "C":
        wire |= {"spec": spec_wire(), "input": None}
    if short == "sc":
        wire |= {"step_name": subject, "input": None, "retry": {"max_attempts": 1, "delay_ms": 0}}
    return wire | fields.get(short, {})


def spec_wire(name: str = "flow", build: str | None = None) -> dict[str, Any]:
    runtime = {"kind": "native_ts", "entrypoint": f"flows/{name}.ts", "export_name": "run"}
    spec: dict[str, Any] = {"name": name, "version": "1", "runtime": runtime}
    return spec if build is None else spec | {"runtime_build_id": build}


# --- engines --------------------------------------------------------------------------------------------------------


def inline(store: Any, **kwargs: Any) -> FlowEngine:
    """An engine that drives inside the call."""
    engine = FlowEngine(store, RegistryRuntime(), secrets=("secret",), **kwargs)
    engine.services.dispatcher = InlineDispatcher(engine)
    return engine


def queued(store: Any, **kwargs: Any) -> tuple[FlowEngine, Queue]:
    """An engine that only queues; its dispatcher says yes to every build unless told otherwise."""
    queue = Queue()
    return FlowEngine(store, RegistryRuntime(), secrets=("secret",), dispatcher=queue, **kwargs), queue


def of_build(store: Any, build: str, *compatible: str, unpinned: bool = False) -> FlowEngine:
    return inline(store, builds=RuntimeBuildCompatibility(build, frozenset(compatible), unpinned=unpinned))


class Queue:
    """Keeps tasks in order. ``routes`` limits the builds it carries; None: all of them."""

    def __init__(self, *, routes: Iterable[str | None] | None = None) -> None:
        self.tasks: list[FlowTask] = []
        self.routes = None if routes is None else set(routes)

    def dispatch(self, task: FlowTask) -> None:
        self.tasks.append(task)

    def has_route(self, build: str | None) -> bool:
        return self.routes is None or build in self.routes

    def dispatch_for_build(self, build: str | None, task: FlowTask) -> None:
        if not self.has_route(build):
            raise RuntimeBuildRouteNotFoundError(build)
        self.dispatch(task)

    def take(self) -> list[FlowTask]:
        taken, self.tasks = self.tasks, []
        return taken


# --- crashes --------------------------------------------------------------------------------------------------------


class Crash(StoreError):
    """The store that an engine lost."""


class CrashingStore:
    """A store that fails where it is told to: before (or ``after``) the append that ``when`` picks, and ever after."""

    def __init__(self, store: EventStore, when: Callable[[Sequence[NewEvent]], bool], *, after: bool = False) -> None:
        self._store = store
        self._when = when
        self._after = after
        self._dead = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def append(self, row: RunRow, events: Sequence[NewEvent], **kwargs: Any) -> RunRow:
        if self._dead or self._when(events):
            self._dead = True
            if self._after:
                self._store.append(row, events, **kwargs)
            raise Crash("the process died here")
        return self._store.append(row, events, **kwargs)

    def park(self, *args: Any, **kwargs: Any) -> Any:
        if self._dead:
            raise Crash("the process is dead")
        return self._store.park(*args, **kwargs)


def holding(event_type: str) -> Callable[[Sequence[NewEvent]], bool]:
    """Picks the appends that hold an event of this type."""
    return lambda events: any(new.event.type == event_type for new in events)
