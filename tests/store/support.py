"""Short ways to write histories and to let threads meet."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from datetime import timedelta
from threading import Barrier, Thread
from typing import Any
from uuid import uuid4

from django.db import connections

from flow_app.core import tokens
from flow_app.core.events import (
    ChildOperationLinked,
    Event,
    HookCreated,
    RunCompleted,
    RunCreated,
    RunProgressRecorded,
    RunStarted,
    StepCompleted,
)
from flow_app.core.payload import Payload
from flow_app.core.policy import ChildOperationReference, WorkflowProgress
from flow_app.core.ports import EventStore, NewEvent, NewRun, RunChange, RunRow
from flow_app.core.snapshot import RunStatus
from flow_app.core.spec import WorkflowSpec

LEASE = timedelta(seconds=30)
SPEC = WorkflowSpec(name="invoice", version="1")
DONE: RunChange = {"status": RunStatus.COMPLETED, "wake_at": None, "wake_reason": "ended", "lease_expires_at": None}


def new(store: EventStore, event: Event, **meta: Any) -> NewEvent:
    return NewEvent(event, uuid4(), store.clock.now(), meta)


def begin(store: EventStore, run_id: str = "r1", *events: Event, **change: Any) -> RunRow:
    """Create a run of two events and more."""
    row = try_begin(store, run_id, *events, **change)
    assert row is not None
    return row


def try_begin(store: EventStore, run_id: str = "r1", *events: Event, **change: Any) -> RunRow | None:
    more = {name: change.pop(name) for name in ("subject", "labels") if name in change}
    build, workflow = change.pop("build", None), change.pop("workflow", SPEC.name)
    values: RunChange = {"status": RunStatus.RUNNING, "wake_at": store.clock.now(), **change}  # type: ignore[typeddict-item]
    spec = WorkflowSpec(name=workflow, version="1")
    log = [new(store, event) for event in (RunCreated(spec, Payload.of({"n": 1})), RunStarted(), *events)]
    return store.create(NewRun(run_id, workflow, "1", build, values, **more), log)


def add(store: EventStore, row: RunRow, *events: Event, epoch: int | None = None, **change: Any) -> RunRow:
    return store.append(row, [new(store, event) for event in events], change=change, epoch=epoch)  # type: ignore[arg-type]


def step(output: object = None, step_id: str = "charge") -> StepCompleted:
    return StepCompleted(step_id, Payload.of(output))


def done(output: object = None) -> RunCompleted:
    return RunCompleted(Payload.of(output))


def hook(hook_id: str = "approval", *, token: str = "secret", metadata: object = None) -> HookCreated:
    return HookCreated(hook_id, tokens.digest(token), Payload.of(metadata))


def progress(progress_id: str, completed: int = 1) -> RunProgressRecorded:
    return RunProgressRecorded(WorkflowProgress(progress_id, completed).to_payload())


def link(reference_id: str, flow_run_id: str | None = None) -> ChildOperationLinked:
    reference = ChildOperationReference(reference_id, "job", "external-1", flow_run_id=flow_run_id)
    return ChildOperationLinked(reference.to_payload())


def at_once(*acts: Callable[[], Any]) -> list[Any]:
    """Run each act in a thread of its own, all from one barrier on; what each returned or raised."""
    barrier = Barrier(len(acts))
    results: list[Any] = [None] * len(acts)

    def run(index: int, act: Callable[[], Any]) -> None:
        try:
            barrier.wait(30)
            results[index] = act()
        except BaseException as error:
            results[index] = error
        finally:
            connections.close_all()

    threads = [Thread(target=run, args=item) for item in enumerate(acts)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    return results


class _Undo(Exception):
    pass


@contextmanager
def undone(transaction: AbstractContextManager[Any]) -> Iterator[None]:
    """Run the body in a transaction that then fails."""
    with suppress(_Undo), transaction:
        yield
        raise _Undo


def kinds(results: list[Any]) -> list[str]:
    return sorted(type(result).__name__ for result in results)
