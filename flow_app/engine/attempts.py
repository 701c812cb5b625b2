"""The attempts of steps that a drive runs itself: side by side where it can, each settled on its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from functools import partial

from flow_app.core import decider
from flow_app.core import events as ev
from flow_app.core.snapshot import StepStatus
from flow_app.engine.deadlines import Deadline, run_within
from flow_app.engine.executors import Executor, Job, SerialExecutor, ThreadExecutor
from flow_app.engine.journal import Journal
from flow_app.engine.keeper import Kept, keeper
from flow_app.engine.outcomes import Outcome, run_body, step_context
from flow_app.engine.services import Services
from flow_app.engine.shift import Shift

_SERIAL_AFTER = 2  # lost leases: from then on a batch's members are delivered one at a time


class Attempts:
    """Those of one drive, each counted to the shift."""

    def __init__(self, services: Services, journal: Journal, shift: Shift) -> None:
        self.services = services
        self.journal = journal
        self.shift = shift
        self._lost = journal.row.lost_leases
        self._abandoned = False
        self._threads_see_writes = services.store.threads_see_writes()
        self._leases = ExitStack()
        self._lease: Kept | None = None

    def abandon(self) -> None:
        """The drive is over: what still runs is told, and the lease is kept no more."""
        self._abandoned = True
        self._leases.close()

    def run(self, step_ids: list[str], redelivered: Sequence[str], *, stops: Callable[[], bool]) -> None:
        """Run attempts, and at once those that may be tried again at once, round by round, until ``stops`` says so."""
        if spent := [step_id for step_id in redelivered if self._is_spent(step_id)]:
            self._give_up(spent)
            return  # the others are still running: the workflow names them again
        if redelivered and self._lost >= self._most_losses(redelivered):
            self._lost = 0
            self._give_up(redelivered[:1])
            return
        serial = self._lost >= _SERIAL_AFTER
        while step_ids:
            settled = self._run_round(step_ids, serial=serial)
            step_ids = [] if stops() else self._tried_again(settled)

    def _is_spent(self, step_id: str) -> bool:
        """Has an attempt been given to as many workers as its step allows? Then it may have run, and does not again."""
        step = self.journal.state.steps[step_id]
        most = self.services.runtime.step_options(step.step_name).deliveries
        return most is not None and self._lost >= most

    def _give_up(self, step_ids: Sequence[str]) -> None:
        now = self.services.store.clock.now()
        for step_id in step_ids:
            attempt = self.journal.state.steps[step_id].attempt
            self.journal.settle(Outcome(step_id, attempt, None, decider.WORKER_LOST, now))

    def _most_losses(self, redelivered: Sequence[str]) -> int:
        """Of several, the first is to blame only once they were delivered one at a time."""
        most = self.services.options.max_deliveries
        return most if len(redelivered) == 1 else max(most, _SERIAL_AFTER + 1)

    def _run_round(self, step_ids: Sequence[str], *, serial: bool) -> list[str]:
        """Run one attempt of each; returns the steps in the order they settled, up to one that ended the run."""
        journal = self.journal
        settled: list[str] = []
        jobs = [self._job(step_id) for step_id in step_ids]
        left = len(jobs)
        for outcome in self._kept(self._executor(len(jobs), serial=serial).run(jobs)):
            left -= 1
            self.shift.steps += 1
            journal.settle(outcome)
            settled.append(outcome.step_id)
            if left and not journal.state.is_terminal:
                journal.flush()  # durable before its siblings settle; the last one travels with the next decision
            if journal.state.is_terminal:
                break
        return settled

    def _job(self, step_id: str) -> Job:
        services, state = self.services, self.journal.state
        step = state.steps[step_id]
        timeout = services.runtime.step_options(step.step_name).timeout
        if timeout is None:
            return partial(run_body, services, step_context(services, state, step_id, is_cancelled=self._is_over))
        store, deadline = services.store, Deadline(services.store.clock, timeout)
        ctx = step_context(services, state, step_id, is_cancelled=lambda: deadline.passed or self._is_over())
        job, threads = partial(run_body, services, ctx), self._threads_see_writes
        return partial(run_within, deadline, job, store.clock, step_id=step_id, attempt=step.attempt, threads=threads)

    def _kept(self, outcomes: Iterator[Outcome]) -> Iterator[Outcome]:
        """Keep the lease while bodies run, where another thread can reach it."""
        if self._lease is None and self._threads_see_writes:
            row, lease = self.journal.row, self.services.options.lease
            renew = partial(self.services.store.renew, row, lease=lease)
            self._lease = self._leases.enter_context(keeper.keeping(renew, lease=lease, what=f"run {row.run_id}"))
        if self._lease is None:
            yield from outcomes
            return
        self._lease.running = True
        try:
            yield from outcomes
        finally:
            self._lease.running = False

    def _tried_again(self, step_ids: Sequence[str]) -> list[str]:
        """Start the next attempt of steps that failed and may be tried again without delay."""
        state = self.journal.state
        again = [
            step_id
            for step_id in step_ids
            if (step := state.steps[step_id]).status is StepStatus.PENDING and step.retry_after is None
        ]
        if not again or state.is_terminal:
            return []
        self.journal.record(ev.StepStarted(step_id, state.steps[step_id].attempt + 1) for step_id in again)
        if not self.journal.flush():
            return []  # the state changed: let the workflow decide
        return again

    def _executor(self, jobs: int, *, serial: bool) -> Executor:
        if serial or jobs == 1 or not self._threads_see_writes:
            return SerialExecutor()
        return ThreadExecutor(self.services.options.step_threads)

    def _is_over(self) -> bool:
        lost = self._lease is not None and self._lease.lost
        return lost or self._abandoned or self.journal.state.is_terminal
