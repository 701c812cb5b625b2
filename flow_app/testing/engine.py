"""An engine for the tests of a project's own workflows: it drives in the call, and its time moves when told to."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Any

from flow_app import conf
from flow_app.authoring.runtime import RegistryRuntime
from flow_app.conf import Options
from flow_app.core.context import StepContext
from flow_app.core.ports import WakeReason
from flow_app.core.snapshot import WorkflowRunSnapshot
from flow_app.core.spec import RuntimeBuildCompatibility
from flow_app.dispatch import InlineDispatcher
from flow_app.engine import FlowEngine
from flow_app.errors import RuntimeFailureError
from flow_app.store import DjangoEventStore
from flow_app.store.retention import RetentionStore
from flow_app.testing.clock import FakeClock


class FlowTestEngine(FlowEngine):
    """A whole engine on the test's database, without a server, a thread or a wait; for TestCase and pytest alike::

        class ApprovalTest(TestCase):
            def test_reminder(self):
                flow = FlowTestEngine()
                run_id = flow.start(approval, {"order": 7})        # drives to the first stop
                flow.advance(timedelta(days=2))                    # timers and retries come due
                run = flow.resume(run_id, "decision", {"ok": True})
                self.assertEqual(run.output, "shipped")

    Every verb of FlowEngine is there. What stops a run is raised at the test, whoever drove it.
    """

    clock: FakeClock

    def __init__(
        self,
        *,
        now: datetime | None = None,
        using: str | None = None,
        builds: RuntimeBuildCompatibility | None = None,
        options: Options | None = None,
    ) -> None:
        options = conf.options() if options is None else options
        self.clock = FakeClock() if now is None else FakeClock(now)
        store = DjangoEventStore(using or options.database, clock=self.clock)
        self._runtime = _CrashingRuntime()
        super().__init__(
            store,
            self._runtime,
            builds=builds or options.builds,
            options=options,
            secrets=conf.secrets(),
            retention=RetentionStore(store.using),
        )
        self.services.dispatcher = InlineDispatcher(self)

    def advance(self, delta: timedelta = timedelta()) -> None:
        """Let time pass, and drive what comes due on the way, each at its own time.

        Runs that were started or resumed inside ``atomic()`` are driven first: a TestCase calls no on_commit.
        """
        until = self.clock.now() + delta
        self._drive_due(dispatched=True)
        while (at := self.store.next_wake()) is not None and at <= until:
            self._move_to(at)
            self._drive_due()
            if self.store.next_wake() == at:
                break  # somebody else holds it
        self._move_to(until)

    def resume(self, run_id: str, hook_id: str, payload: object = None) -> WorkflowRunSnapshot:
        """Answer a hook, drive on to the next stop, and return the run as it then is."""
        self.resume_hook(run_id, hook_id, payload)
        return self.snapshot(run_id)

    def run_to_end(self, run_id: str) -> WorkflowRunSnapshot:
        """Drive a run to its end, letting time pass as far as it asks. AssertionError when only an answer helps."""
        while not self.store.row(run_id).status.is_terminal:
            self.resume_scheduled_run(run_id)
            row = self.store.row(run_id)
            if row.wake_at is not None:
                self._move_to(row.wake_at)
            elif row.paused_at is not None:
                raise AssertionError(f"Run {run_id!r} is paused: call unpause first.")
            elif not row.status.is_terminal:
                hooks = [hook.hook_id for hook in self.list_active_hooks() if hook.run_id == run_id]
                raise AssertionError(f"Run {run_id!r} waits for an answer to {hooks}: call resume first.")
        return self.snapshot(run_id)

    @contextmanager
    def crash_after(self, step_id: str) -> Iterator[None]:
        """In this block the process dies once, when this step's body has run and its outcome is not yet recorded.

        The block ends there. What drives the run next runs the body again, in the same attempt.
        """
        self._runtime.doomed = step_id
        try:
            yield
        except SimulatedCrash:
            pass
        except RuntimeFailureError as error:  # it died in a thread of a batch
            if not isinstance(error.__cause__, SimulatedCrash):
                raise
        finally:
            reached, self._runtime.doomed = self._runtime.doomed is None, None
        if not reached:
            raise AssertionError(f"Step {step_id!r} did not run in the block.")

    def _drive_due(self, *, dispatched: bool = False) -> None:
        now = self.clock.now()
        for row in self.store.rows():
            due = row.wake_at is not None and row.wake_at <= now
            if due or (dispatched and row.wake_reason == WakeReason.DISPATCHED):
                self.resume_scheduled_run(row.run_id)

    def _move_to(self, at: datetime) -> None:
        self.clock.advance(max(at - self.clock.now(), timedelta()))


class SimulatedCrash(BaseException):
    """The end of a process, for tests; see :meth:`FlowTestEngine.crash_after`."""


class _CrashingRuntime(RegistryRuntime):
    doomed: str | None = None

    def run_step(self, ctx: StepContext) -> Any:
        output = super().run_step(ctx)
        if ctx.step_id == self.doomed:
            self.doomed = None
            raise SimulatedCrash
        return output
