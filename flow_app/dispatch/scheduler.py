"""The scheduler: finds every run that is due to be looked at, whatever the reason, and sends one hint for each."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

from flow_app.core.ports import DueRun, FlowTaskDispatcher, RunChange, WakeReason
from flow_app.core.tasks import DriveRun
from flow_app.engine import FlowEngine
from flow_app.errors import ConfigurationError, RuntimeBuildRouteNotFoundError

logger = logging.getLogger("flow_app.dispatch")

_BATCH = 100


@dataclass(frozen=True, slots=True)
class TickReport:
    """What one tick found: ``dispatched`` went out; ``left`` has no route; ``failed`` could not be sent this time."""

    dispatched: tuple[DueRun, ...] = ()
    left: tuple[DueRun, ...] = ()
    failed: tuple[DueRun, ...] = ()

    @property
    def has_due_work(self) -> bool:
        return bool(self.dispatched or self.left or self.failed)

    @property
    def run_ids(self) -> list[str]:
        return sorted(run.run_id for run in self.dispatched)


class FlowScheduler:
    """Ticks over the runs whose ``wake_at`` has passed: due timers and retries, lost messages, dead workers alike.

    Any number of schedulers may tick at once; a run is hinted at once per grace period.
    """

    def __init__(
        self, engine: FlowEngine, dispatcher: FlowTaskDispatcher | None = None, *, on_missing_route: str | None = None
    ) -> None:
        chosen = dispatcher or engine.services.dispatcher
        if chosen is None:
            raise ConfigurationError("A scheduler needs a dispatcher: pass one, or give the engine one.")
        self.engine = engine
        self.dispatcher = chosen
        self.skips = (on_missing_route or engine.services.options.build.get("on_missing_route")) == "skip"

    def tick(self, *, limit: int = 10_000) -> TickReport:
        """Dispatch what is due, at most ``limit`` runs.

        Raises RuntimeBuildRouteNotFoundError when a run's build has no route and such runs are not skipped; then
        nothing is dispatched.
        """
        dispatched: list[DueRun] = []
        left: list[DueRun] = []
        failed: list[DueRun] = []
        taken = 0
        size = _BATCH if self.skips else limit  # all or nothing takes all at once
        while taken < limit:
            due = self._take(min(size, limit - taken))
            taken += len(due)
            for run in due:
                if not self.dispatcher.has_route(run.build):
                    left.append(run)
                elif self._send(run):
                    dispatched.append(run)
                else:
                    failed.append(run)
            if len(due) < size:
                break
        return TickReport(tuple(dispatched), tuple(left), tuple(failed))

    def _take(self, limit: int) -> Sequence[DueRun]:
        """Take due runs. A missing route undoes the taking, or is what the run says it waits for."""
        store = self.engine.store

        def take() -> Sequence[DueRun]:
            due = store.take_due(limit=limit, grace=self.engine.services.options.dispatch_grace)
            for run in due:
                if self.dispatcher.has_route(run.build):
                    continue
                if not self.skips:
                    raise RuntimeBuildRouteNotFoundError(run.build)
                store.park(store.row(run.run_id), change=RunChange(wake_reason=WakeReason.NO_WORKER))
            return due

        return store.transact(take)

    def _send(self, run: DueRun) -> bool:
        """One bad run never stops the others."""
        try:
            self.dispatcher.dispatch_for_build(run.build, DriveRun(run.run_id))
        except Exception:
            logger.exception("Run %s failed when it was dispatched; it is tried again later", run.run_id)
            return False
        return True

    def next_wakeup_delay(self) -> timedelta | None:
        """Time until some run is due; zero when one is overdue, None when nothing is timed."""
        at = self.engine.store.next_wake()
        return None if at is None else max(at - self.engine.store.clock.now(), timedelta())
