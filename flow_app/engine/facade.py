"""The engine: every verb in one place, each a few lines over the module that does it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from datetime import datetime
from typing import Any

from flow_app.conf import Options
from flow_app.core import instants
from flow_app.core.actor import Actor
from flow_app.core.context import Secrets
from flow_app.core.events import EventEnvelope
from flow_app.core.policy import ChildOperationReference, WorkflowProgress
from flow_app.core.ports import EventStore, FlowTaskDispatcher, HookRow, Observer, RunRow, Runtime
from flow_app.core.snapshot import WorkflowRunSnapshot
from flow_app.core.spec import RuntimeBuildCompatibility
from flow_app.engine import cancellation, hooks, imports, inspection, operating, progress, retries, waits, working
from flow_app.engine import drive as driving
from flow_app.engine import start as starting
from flow_app.engine.drive import Wakeup
from flow_app.engine.inspection import ScheduledWakeup, Suspension
from flow_app.engine.retention import Hold, Retention, RetentionReport, RetentionStore
from flow_app.engine.services import Services
from flow_app.engine.start import Started, Tags, Workflow
from flow_app.errors import ConfigurationError


def _meta(actor: str | None) -> Mapping[str, Any]:
    if actor is None:
        return {}
    address = {"address": actor.address} if isinstance(actor, Actor) and actor.address else {}
    return {"actor": str(actor), **address}


class FlowEngine:
    """Starts, drives, resumes and ends runs.

    Host verbs commit their event and dispatch; they may join the caller's transaction, and then dispatch on commit.
    ``actor`` says who did it, and is kept beside the event.
    """

    def __init__(
        self,
        store: EventStore,
        runtime: Runtime,
        *,
        dispatcher: FlowTaskDispatcher | None = None,
        builds: RuntimeBuildCompatibility | None = None,
        options: Options | None = None,
        secrets: Secrets = (),
        observers: Iterable[Observer] = (),
        retention: RetentionStore | None = None,
    ) -> None:
        self.services = Services(
            store=store,
            runtime=runtime,
            options=Options() if options is None else options,
            builds=builds,
            secrets=secrets,
            observers=tuple(observers),
            dispatcher=dispatcher,
        )
        self._retention = None if retention is None else Retention(retention)

    @property
    def store(self) -> EventStore:
        return self.services.store

    # --- starting and driving -----------------------------------------------------------------------------------------

    def start(
        self,
        workflow: Workflow,
        input: object = None,
        *,
        run_id: str | None = None,
        version: str | None = None,
        build: str | None = None,
        subject: str = "",
        labels: Mapping[str, str] | None = None,
        actor: str | None = None,
    ) -> str:
        """Start a run in the caller's transaction and dispatch it on commit; returns its id.

        With a ``run_id`` the call is idempotent: an existing run of the same workflow and input is the same run, and
        is driven on. Version and build are compared only where they are passed.

        Raises InvalidWorkflowError, InvalidRunIdError, PayloadError, RunConflictError, RuntimeBuildUnavailableError.
        """
        return self.ensure_started(
            workflow,
            input,
            run_id=run_id,
            version=version,
            build=build,
            subject=subject,
            labels=labels,
            actor=actor,
        ).run_id

    def ensure_started(
        self,
        workflow: Workflow,
        input: object = None,
        *,
        run_id: str | None = None,
        version: str | None = None,
        build: str | None = None,
        subject: str = "",
        labels: Mapping[str, str] | None = None,
        actor: str | None = None,
    ) -> Started:
        """:meth:`start`, for callers who must know whether the run was there before."""
        tags = Tags(subject, labels or {})
        return starting.start(
            self.services, workflow, input, run_id=run_id, version=version, build=build, tags=tags, meta=_meta(actor)
        )

    def start_with_id(self, run_id: str, workflow: Workflow, input: object = None, **stated: Any) -> str:
        """:meth:`start` with a run id."""
        return self.start(workflow, input, run_id=run_id, **stated)

    def drive(self, run_id: str) -> WorkflowRunSnapshot:
        """Drive a run as far as it goes, without completing timers. Refused inside a transaction.

        Raises what stops the run; it is then marked as blocked, and tried again later.
        """
        driving.drive(self.services, run_id)
        return self.snapshot(run_id)

    def resume_scheduled_run(self, run_id: str, now: datetime | None = None) -> list[Wakeup]:
        """What a worker does with a hint: complete what is due, and drive. Returns what this call brought in.

        Where steps and drives go to the same workers, it may go on with one member of a batch that it has just sent.
        """
        return working.drive_run(self.services, run_id, now=now)

    def run_step(self, run_id: str, step_id: str, attempt: int) -> bool:
        """What a worker does with the message of one attempt: run the body, and commit what came of it.

        True when this call committed an outcome. False when there is nothing to do: the message came twice or late,
        another worker has the attempt, the run is paused. Reads no history; refused inside a transaction. Where steps
        and drives go to the same workers, it drives the run on when that waited for nothing else.

        Raises RuntimeBuildUnavailableError and StepNotRegisteredError before the delivery is counted, LeaseLostError
        when the attempt was given to another worker meanwhile or has ended: then nothing is written.
        """
        return working.run_step(self.services, run_id, step_id, attempt)

    # --- waits --------------------------------------------------------------------------------------------------------

    def resume_wait(self, run_id: str, wait_id: str, *, actor: str | None = None) -> bool:
        """Complete a wait, even before its time. True when this call did; a completed wait or ended run is no error.

        Raises InvalidTransitionError for an unknown wait (RunTerminalError when the run has ended).
        """
        return waits.resume(self.services, run_id, wait_id, meta=_meta(actor))

    def resume_due_waits(self, now: datetime) -> list[tuple[str, str]]:
        """Complete every wait due at ``now``; the (run, wait) pairs that this call completed."""
        return waits.resume_due(self.services, self._at(now))

    def resume_due_retries(self, now: datetime) -> list[tuple[str, str]]:
        """Drive the runs that have a retry due at ``now``; the due (run, step) pairs it started."""
        return waits.resume_due_retries(self.services, self._at(now))

    def retry_now(self, run_id: str, step_id: str, *, actor: str | None = None) -> bool:
        """Begin the next attempt of a step without waiting for its delay. False when no delay holds it back.

        Raises RunTerminalError, InvalidTransitionError for a step that was never scheduled,
        RuntimeBuildUnavailableError.
        """
        return retries.start(self.services, run_id, step_id, meta=_meta(actor))

    # --- hooks --------------------------------------------------------------------------------------------------------

    def resume_hook(self, run_id: str, hook_id: str, payload: object = None, *, actor: str | None = None) -> bool:
        """Answer a hook. True when this call wrote the answer, False when the same answer stands already.

        Raises HookConflictError when it stands otherwise, RunTerminalError, InvalidTransitionError for an unknown hook.
        """
        return hooks.resume(self.services, run_id, hook_id, payload, meta=_meta(actor))

    def resume_hook_by_token(self, token: str, payload: object = None, *, actor: str | None = None) -> tuple[str, str]:
        """Answer the active hook that has this token; returns (run id, hook id), for redelivery by id.

        Raises HookTokenNotFoundError when no active hook has it.
        """
        return hooks.resume_by_token(self.services, token, payload, meta=_meta(actor))

    def dispose_hook(self, run_id: str, hook_id: str, *, actor: str | None = None) -> bool:
        """Withdraw a hook; the mirror image of :meth:`resume_hook`."""
        return hooks.dispose(self.services, run_id, hook_id, meta=_meta(actor))

    def dispose_hook_by_token(self, token: str, *, actor: str | None = None) -> tuple[str, str]:
        """Withdraw the active hook that has this token; returns (run id, hook id)."""
        return hooks.dispose_by_token(self.services, token, meta=_meta(actor))

    # --- ending -------------------------------------------------------------------------------------------------------

    def request_cancellation(
        self, run_id: str, reason: str | None = None, *, actor: str | None = None
    ) -> WorkflowRunSnapshot:
        """Ask a run to stop; it may clean up first. Repeating the request drives on; a run that has ended is no error.

        Raises RunConflictError when another request is recorded.
        """
        cancellation.request(self.services, run_id, reason=reason, meta=_meta(actor))
        return self.snapshot(run_id)

    def force_cancel(self, run_id: str, reason: str | None = None, *, actor: str | None = None) -> bool:
        """End a run as cancelled at once, without clean-up. False when it has ended already."""
        return cancellation.force_cancel(self.services, run_id, reason=reason, meta=_meta(actor))

    cancel = force_cancel

    def terminate_for_timeout(
        self, run_id: str, deadline: datetime, reason: str | None = None, *, actor: str | None = None
    ) -> bool:
        """End a run as timed out at once. False when it has ended already."""
        return cancellation.time_out(self.services, run_id, deadline=deadline, reason=reason, meta=_meta(actor))

    def terminate_for_host_shutdown(self, run_id: str, reason: str | None = None, *, actor: str | None = None) -> bool:
        """End a run because its host goes away for good; an ordinary process exit does not call this."""
        return cancellation.shut_down(self.services, run_id, reason=reason, meta=_meta(actor))

    # --- operating ----------------------------------------------------------------------------------------------------

    def pause(self, run_id: str, *, actor: str | None = None) -> bool:
        """Put an open run to sleep; False when it sleeps already, whoever paused it.

        It is not driven, timers and retries keep their time and do not fire, what arrives is kept. A step's body that
        is running ends, and its outcome is recorded; the next one does not start. Raises RunTerminalError.

        A pause is no event: ``actor`` is kept on the row (``paused_by``) for as long as it lasts. Those of
        :meth:`unpause` and :meth:`run_now` are told to the log of the process alone.
        """
        return operating.pause(self.services, run_id, actor=actor)

    def unpause(self, run_id: str, *, actor: str | None = None) -> bool:
        """Let a paused run go on, at once where something is due; False when it is not paused.

        Raises RunTerminalError.
        """
        return operating.unpause(self.services, run_id, actor=actor)

    def run_now(self, run_id: str, *, actor: str | None = None) -> bool:
        """Have a run looked at now, blocked or waiting; timers that are not due stay. False when it is being driven.

        Raises RunTerminalError, InvalidTransitionError for a paused run, RuntimeBuildUnavailableError.
        """
        return operating.run_now(self.services, run_id, actor=actor)

    # --- progress and children ----------------------------------------------------------------------------------------

    def record_progress(self, run_id: str, item: WorkflowProgress, *, actor: str | None = None) -> bool:
        """Record progress from outside. False when the same was recorded before.

        Raises ProgressConflictError for the same id with other content, RunTerminalError.
        """
        return progress.record(self.services, run_id, item, meta=_meta(actor))

    def link_child_operation(self, run_id: str, child: ChildOperationReference, *, actor: str | None = None) -> bool:
        """Link a child task of another system. False when the same was linked before.

        Raises ChildOperationConflictError, RunTerminalError, RunNotFoundError for a ``flow_run_id`` that is not there.
        """
        return progress.link_child(self.services, run_id, child, meta=_meta(actor))

    # --- reading ------------------------------------------------------------------------------------------------------

    def snapshot(self, run_id: str) -> WorkflowRunSnapshot:
        """The run, folded from its history."""
        return inspection.snapshot(self.services, run_id)

    def row(self, run_id: str) -> RunRow:
        """Why the run waits: ``wake_reason`` and ``wake_at``, what blocks it, its lease. Reads no history."""
        return self.store.row(run_id)

    def history(self, run_id: str, *, after: int = 0) -> list[EventEnvelope]:
        return self.store.history(run_id, after=after)

    def list_run_ids(self) -> list[str]:
        return self.store.run_ids()

    def list_snapshots(self) -> list[WorkflowRunSnapshot]:
        """Every run, in order of id. Folds every history."""
        return list(inspection.snapshots(self.services))

    def run_summary(self) -> dict[str, int]:
        """Counts by status, in all, ended and open; and of what is open in open runs."""
        return inspection.summary(self.services)

    def _at(self, now: datetime | None) -> datetime:
        return self.store.clock.now() if now is None else instants.utc(now, what="now")

    def list_open_suspensions(self, now: datetime | None = None) -> list[Suspension]:
        return inspection.open_suspensions(self.services, self._at(now))

    def list_due_waits(self, now: datetime | None = None) -> list[tuple[str, str]]:
        return inspection.list_due_waits(self.services, self._at(now))

    def list_due_retries(self, now: datetime | None = None) -> list[tuple[str, str]]:
        return inspection.list_due_retries(self.services, self._at(now))

    def list_due_wakeups(self, now: datetime | None = None) -> list[ScheduledWakeup]:
        return inspection.due_wakeups(self.services, self._at(now))

    def next_wakeup(self) -> ScheduledWakeup | None:
        return inspection.next_wakeup(self.services)

    def list_active_hooks(self) -> list[HookRow]:
        """Active hooks of open runs, sorted by run and hook; tokens as digests."""
        return self.store.active_hooks()

    def runtime_build_id(self, run_id: str) -> str | None:
        return self.store.row(run_id).build

    def supports_runtime_build(self, build: str | None) -> bool:
        return self.services.supports(build)

    def runtime_build_compatibility(self) -> RuntimeBuildCompatibility | None:
        return self.services.builds

    # --- taking over --------------------------------------------------------------------------------------------------

    def import_run(self, history: Iterable[EventEnvelope]) -> str:
        """Write a history that another engine recorded as a new run, to be driven on from here; returns its id.

        Raises InvalidTransitionError for a history that cannot be, RunConflictError when the id is taken.
        """
        return imports.import_run(self.services, history)

    # --- retention ----------------------------------------------------------------------------------------------------

    def hold(self, run_id: str, hold_id: str, reason: str) -> None:
        """Keep a run from being pruned; it may have several holds. The same hold twice is one.

        Raises RunConflictError when the hold stands otherwise or the run is deleted, RunNotFoundError,
        InvalidTransitionError for a blank text.
        """
        self._keeper.hold(run_id, hold_id, reason=reason)

    def release_hold(self, hold_id: str) -> bool:
        """Take a hold away; False when there was none."""
        return self._keeper.release(hold_id)

    def list_holds(self, run_id: str | None = None) -> Collection[Hold]:
        """All holds, or one run's, by hold id."""
        return self._keeper.holds(run_id)

    def preview_prune(self, before: datetime, *, run_ids: Collection[str] | None = None) -> RetentionReport:
        """What :meth:`prune` would do."""
        return self._keeper.preview(before=before, run_ids=run_ids)

    def prune(self, before: datetime, *, run_ids: Collection[str] | None = None) -> RetentionReport:
        """Delete the whole histories of runs that ended before a time, all or those named, behind tombstones.

        Runs that are held or linked with runs that stay are kept. All in one transaction: an error deletes nothing.
        """
        return self._keeper.prune(before=before, now=self.store.clock.now(), run_ids=run_ids)

    @property
    def _keeper(self) -> Retention:
        if self._retention is None:
            raise ConfigurationError("This engine was made without a retention store, so it keeps every run for ever.")
        return self._retention
