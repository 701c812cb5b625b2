"""Words the scenario tests share: histories in short names, engines restarted, code that is replaced."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from flow_app import WorkflowSpec
from flow_app.authoring import registry
from flow_app.authoring.runtime import RegistryRuntime
from flow_app.core import events as ev
from flow_app.core.events import EventEnvelope
from flow_app.core.payload import NULL
from flow_app.core.ports import EventStore
from flow_app.dispatch import InlineDispatcher
from flow_app.engine import FlowEngine

SHORT = {
    "run_created": "C", "run_started": "S", "run_completed": "RC", "run_failed": "RF", "run_cancelled": "RX",
    "run_timed_out": "RT", "run_retry_exhausted": "RE", "run_host_shutdown": "RH",
    "run_cancellation_requested": "CR", "run_progress_recorded": "PG", "child_operation_linked": "CH",
    "step_created": "sc", "step_started": "ss", "step_completed": "sk", "step_retrying": "sr", "step_failed": "sf",
    "wait_created": "wc", "wait_completed": "wk",
    "hook_created": "hc", "hook_received": "hr", "hook_disposed": "hd", "hook_expired": "he",
}  # fmt: skip

#: How long a thread of a test may take before the test gives up; nothing ever waits this long.
PATIENCE = 20


def names(engine: FlowEngine, run_id: str) -> str:
    """A history as the scenarios write it: ``C S sc ss sk RC``."""
    return " ".join(SHORT[envelope.type] for envelope in engine.history(run_id))


def numbered(engine: FlowEngine, run_id: str) -> str:
    """The same with the attempt of every step event that names one: ``C S sc ss1 sr1 ss2 sk RC``."""
    return " ".join(f"{SHORT[item.type]}{item.data.get('attempt', '')}" for item in engine.history(run_id))


def told(engine: FlowEngine, run_id: str) -> list[str]:
    """A history with the ids of what it is about: ``["C", "S", "sc:a", "ss:a", ...]``."""
    return [f"{SHORT[item.type]}:{subject}" if (subject := _subject(item)) else SHORT[item.type]
            for item in engine.history(run_id)]  # fmt: skip


def _subject(envelope: EventEnvelope) -> str:
    ids = ("step_id", "wait_id", "hook_id", "progress_id", "reference_id")
    return next((envelope.data[name] for name in ids if name in envelope.data), "")


def engine_on(store: EventStore, **kwargs: Any) -> FlowEngine:
    """A process of its own on this store: a new engine that drives inside the call."""
    made = FlowEngine(store, RegistryRuntime(), secrets=("secret",), **kwargs)
    made.services.dispatcher = InlineDispatcher(made)
    return made


def restarted(engine: FlowEngine, **kwargs: Any) -> FlowEngine:
    """The engine after its process was started again."""
    return engine_on(engine.store, **kwargs)


def redefine(name: str, function: Callable[..., Any]) -> None:
    """Put other code under a registered workflow's name, as a deploy does."""
    registry.workflows.get(name).function = function


def imported(engine: FlowEngine, run_id: str, *events: ev.Event, workflow: str = "w") -> str:
    """A run whose history, after run_created, is exactly ``events``."""
    created = ev.RunCreated(WorkflowSpec(workflow), NULL)
    new = engine.services.new_events((created, *events))
    return engine.import_run(
        EventEnvelope(run_id, at, item.event_id, item.recorded_at, item.event) for at, item in enumerate(new, start=1)
    )


class Crowd:
    """Threads of a test, each with database connections of its own; ``join`` gives their results or errors."""

    def __init__(self, *acts: Callable[[], object]) -> None:
        self.results: list[Any] = [None] * len(acts)
        self._threads = [threading.Thread(target=self._run, args=(at, act)) for at, act in enumerate(acts)]
        for thread in self._threads:
            thread.start()

    def _run(self, at: int, act: Callable[[], object]) -> None:
        from django.db import connections

        try:
            self.results[at] = act()
        except Exception as error:
            self.results[at] = error
        finally:
            connections.close_all()

    def join(self) -> list[Any]:
        for thread in self._threads:
            thread.join(PATIENCE)
            assert not thread.is_alive(), "a thread of the test hangs"
        return self.results
