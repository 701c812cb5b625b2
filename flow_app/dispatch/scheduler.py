"""The scheduler: finds every run and step that is due, whatever the reason, and sends a hint for each."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial

from flow_app.core.ports import DueRun, FlowTaskDispatcher, RunChange, StepDispatcher, WakeReason
from flow_app.core.remote import DueStep
from flow_app.core.tasks import DriveRun, RunStep
from flow_app.engine import FlowEngine
from flow_app.errors import ConfigurationError, RuntimeBuildRouteNotFoundError

logger = logging.getLogger("flow_app.dispatch")

Due = DueRun | DueStep

#: Runs, and steps, that are taken in one transaction.
BATCH = 250


@dataclass(frozen=True, slots=True)
class TickReport:
    """What one tick found: ``dispatched`` runs and ``steps`` went out; ``left`` has no route; ``failed`` was not sent.

    What failed is tried again later, each on its own.
    """

    dispatched: tuple[DueRun, ...] = ()
    steps: tuple[DueStep, ...] = ()
    left: tuple[Due, ...] = ()
    failed: tuple[Due, ...] = ()

    @property
    def has_due_work(self) -> bool:
        return bool(self.dispatched or self.steps or self.left or self.failed)

    @property
    def run_ids(self) -> list[str]:
        return sorted(run.run_id for run in self.dispatched)


class FlowScheduler:
    """Ticks over the rows whose ``wake_at`` has passed: due timers and retries, lost messages, dead workers alike.

    Any number of schedulers may tick at once; a run is hinted at once per grace period.
    """

    def __init__(
        self, engine: FlowEngine, dispatcher: FlowTaskDispatcher | None = None, *, on_missing_route: str | None = None
    ) -> None:
        """``on_missing_route`` is "error" or "skip"; else ``FLOW_APP["BUILD"]`` says it. Raises ConfigurationError."""
        chosen = dispatcher or engine.services.dispatcher
        if chosen is None:
            raise ConfigurationError("A scheduler needs a dispatcher: pass one, or give the engine one.")
        if on_missing_route not in (None, "error", "skip"):
            raise ConfigurationError(f"on_missing_route must be 'error' or 'skip', not {on_missing_route!r}.")
        self.engine = engine
        self.dispatcher = chosen
        self.skips = (on_missing_route or engine.services.options.build.get("on_missing_route")) == "skip"

    def tick(self, *, limit: int = 10_000) -> TickReport:
        """Dispatch what is due, at most ``limit`` runs and as many steps, in batches.

        Raises RuntimeBuildRouteNotFoundError when a build that has work due has no route and is not to be skipped;
        then nothing is dispatched.
        """
        sent: list[Due] = []
        left: list[Due] = []
        failed: list[Due] = []
        taken = 0
        while taken < limit:
            size = min(BATCH, limit - taken)
            runs, steps = self._take(size)
            batch: tuple[Due, ...] = (*runs, *steps)
            for due in batch:
                if not self._has_route(due):
                    left.append(due)
                elif self._send(due):
                    sent.append(due)
                else:
                    failed.append(due)
            if max(len(runs), len(steps)) < size:
                break
            taken += size
        return TickReport(
            dispatched=tuple(due for due in sent if isinstance(due, DueRun)),
            steps=tuple(due for due in sent if isinstance(due, DueStep)),
            left=tuple(left),
            failed=tuple(failed),
        )

    def next_wakeup_delay(self) -> timedelta | None:
        """Time until something is due; zero when it is overdue, None when nothing is timed."""
        store, steps = self.engine.store, self.engine.services.step_store
        times = [store.next_wake(), None if steps is None else steps.next_step_wake()]
        earliest = min((at for at in times if at is not None), default=None)
        return None if earliest is None else max(earliest - store.clock.now(), timedelta())

    # --- taking -------------------------------------------------------------------------------------------------------

    def _take(self, limit: int) -> tuple[Sequence[DueRun], Sequence[DueStep]]:
        """Take a batch. A missing route undoes the taking, or is what the run says it waits for."""
        return self.engine.store.transact(partial(self._take_now, limit))

    def _take_now(self, limit: int) -> tuple[Sequence[DueRun], Sequence[DueStep]]:
        store, step_store = self.engine.store, self.engine.services.step_store
        grace = self.engine.services.options.dispatch_grace
        runs = store.take_due(limit=limit, grace=grace)
        steps = [] if step_store is None else step_store.take_due_steps(limit=limit, grace=grace)
        if not self.skips:
            self._require_routes((*runs, *steps), backlog=max(len(runs), len(steps)) == limit)
        for run in runs:
            if not self._has_route(run):
                change = RunChange(wake_reason=WakeReason.NO_WORKER, dispatches=0)  # nothing was sent
                store.park(store.row(run.run_id), change=change)
        return runs, steps

    # --- routes -------------------------------------------------------------------------------------------------------

    def _require_routes(self, batch: Iterable[Due], *, backlog: bool) -> None:
        """Ask for a route for each build that has work due, before the first hint goes out."""
        builds = {due.build for due in batch if not _has_queue(due)}
        if backlog:
            builds |= self.engine.store.due_builds()
        for build in sorted(builds, key=str):
            if not self.dispatcher.has_route(build):
                raise RuntimeBuildRouteNotFoundError(build)

    def _has_route(self, due: Due) -> bool:
        return _has_queue(due) or self.dispatcher.has_route(due.build)

    # --- sending ------------------------------------------------------------------------------------------------------

    def _send(self, due: Due) -> bool:
        """One bad run never stops the others."""
        try:
            self._dispatch(due)
        except Exception:
            logger.exception(
                "Run %s failed when it was dispatched; it is tried again later",
                due.run_id,
                extra={"run_id": due.run_id},
            )
            return False
        return True

    def _dispatch(self, due: Due) -> None:
        dispatcher = self.dispatcher
        if isinstance(due, DueRun):
            dispatcher.dispatch_for_build(due.build, DriveRun(due.run_id))
            return
        step = RunStep(due.run_id, due.step_id, due.attempt)
        if isinstance(dispatcher, StepDispatcher):
            dispatcher.dispatch_step(step, build=due.build, queue=due.queue)
        else:
            dispatcher.dispatch_for_build(due.build, step)


def _has_queue(due: Due) -> bool:
    """A step that names its queue goes there, whatever the build of its run."""
    return isinstance(due, DueStep) and due.queue is not None
