"""What a step worker does: take one attempt, run its body, commit the outcome. It reads no history."""

from __future__ import annotations

import logging
import os
import socket
from contextlib import AbstractContextManager, nullcontext
from functools import partial

from flow_app.core import decider
from flow_app.core.context import StepContext, derived_token
from flow_app.core.ports import NamesSteps
from flow_app.core.remote import StepOut, StepStore
from flow_app.engine import shutdown
from flow_app.engine.deadlines import Deadline, run_within, timed_out
from flow_app.engine.keeper import Kept, keeper
from flow_app.engine.outcomes import Outcome, logger_for, run_body
from flow_app.engine.services import Services
from flow_app.engine.settling import settle
from flow_app.engine.shift import Shift
from flow_app.errors import ConfigurationError, InvalidTransitionError

logger = logging.getLogger("flow_app.engine")

_BEATS = 10  # a lease is renewed by the body's own heartbeats at most so often


def run_step(services: Services, run_id: str, step_id: str, attempt: int, *, shift: Shift | None = None) -> bool:
    """Run one attempt and commit what came of it; False when there is nothing to do. See FlowEngine.run_step."""
    store = services.step_store
    if store is None:
        raise ConfigurationError("This engine's store keeps no steps that travel. Give the engine a DjangoEventStore.")
    if store.in_caller_transaction():
        raise InvalidTransitionError(
            "a step cannot run inside a transaction: it would be undone with it, and its effects not", run_id=run_id
        )
    step = None if shutdown.requested() else _take(services, store, run_id, step_id, attempt)
    if step is None:
        return False
    outcome = _foregone(services, step) or _Attempt(services, store, step).run()
    settle(services, store, step, outcome, shift=shift)
    return True


def _take(services: Services, store: StepStore, run_id: str, step_id: str, attempt: int) -> StepOut | None:
    """The attempt, counted as delivered before its body runs; None when it is not for this message to run."""
    lease, worker = services.options.lease, f"{socket.gethostname()}:{os.getpid()}"
    runtime: object = services.runtime
    if isinstance(runtime, NamesSteps):
        names, builds = runtime.step_names(), services.builds
        step = store.take_step(run_id, step_id, attempt, names=names, builds=builds, lease=lease, worker=worker)
        if step is not None:
            return step
    step = store.find_step(run_id, step_id)
    if step is None or step.attempt != attempt or step.paused:
        return None
    if step.held and not step.timed_out:
        return None
    services.admit(run_id, step.run.build)
    options = services.runtime.step_options(step.step_name)  # code that is not here is no failure of the step
    return store.claim_step(step, lease=lease, worker=worker, durable=options.deliveries is not None)


def _foregone(services: Services, step: StepOut) -> Outcome | None:
    """What has become of an attempt whose body is not to run again."""
    clock = services.store.clock
    if step.timed_out:
        return timed_out(step.step_id, step.attempt, clock)
    most = services.runtime.step_options(step.step_name).deliveries or services.options.max_deliveries
    if step.late or step.deliveries > most:
        return Outcome(step.step_id, step.attempt, None, decider.WORKER_LOST, clock.now())
    return None


class _Attempt:
    """One delivery of one attempt."""

    def __init__(self, services: Services, store: StepStore, step: StepOut) -> None:
        self.services = services
        self.store = store
        self.step = step
        self.lost = False
        self.lease = services.options.lease
        self._kept: Kept | None = None
        self._deadline = None if step.timeout is None else Deadline(store.clock, step.timeout)
        self._beats_at = self._next_beat()

    def run(self) -> Outcome:
        job = partial(run_body, self.services, self._context())
        with self._keeping() as self._kept:
            if self._deadline is None:
                return job()
            step, threads = self.step, self.store.threads_see_writes()
            return run_within(
                self._deadline, job, self.store.clock, step_id=step.step_id, attempt=step.attempt, threads=threads
            )

    def _keeping(self) -> AbstractContextManager[Kept | None]:
        if not self.store.threads_see_writes():
            return nullcontext()
        renew = partial(self.store.renew_step, self.step, lease=self.lease)
        return keeper.keeping(renew, lease=self.lease, what=f"step {self.step.step_id} of run {self.step.run.run_id}")

    # --- what the body sees -------------------------------------------------------------------------------------------

    def _context(self) -> StepContext:
        step, store, secrets = self.step, self.store, self.services.secrets
        run_id = step.run.run_id

        def token_for(hook_id: str) -> str:
            hook = store.hook(step.run, hook_id)
            return derived_token(run_id, hook_id, known=None if hook is None else hook.token_digest, secrets=secrets)

        return StepContext(
            run_id=run_id,
            step_id=step.step_id,
            step_name=step.step_name,
            attempt=step.attempt,
            input_payload=step.input,
            spec=step.spec,
            logger=logger_for(run_id, step.step_id, step.attempt),
            token_for=token_for,
            read_history=lambda: store.history(run_id),
            is_cancelled=self._is_over,
            renew=self._beat,
        )

    def _is_over(self) -> bool:
        taken = self.lost or (self._kept is not None and self._kept.lost)
        return taken or (self._deadline is not None and self._deadline.passed)

    def _next_beat(self) -> float:
        return self.store.clock.monotonic() + self.lease.total_seconds() / _BEATS

    def _beat(self) -> None:
        """Renew the lease, unless that was done just now, or would wait for a transaction of the body to end."""
        if self.store.clock.monotonic() < self._beats_at or self.store.in_caller_transaction():
            return
        self._beats_at = self._next_beat()
        try:
            self.lost = not self.store.renew_step(self.step, lease=self.lease)
        except Exception:
            step_id, labels = self.step.step_id, {"run_id": self.step.run.run_id, "step_id": self.step.step_id}
            logger.warning("Step %s: its lease could not be renewed this time", step_id, exc_info=True, extra=labels)
