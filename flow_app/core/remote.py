"""Steps that travel: one message for each attempt, to any worker. What is kept of them beside the log, and by whom."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import NamedTuple, Protocol

from flow_app.core.payload import Payload
from flow_app.core.policy import RetryPolicy
from flow_app.core.ports import EventStore, NewEvent, RunChange, RunIdentity, RunRow
from flow_app.core.spec import RuntimeBuildCompatibility, WorkflowSpec


class Awaited(StrEnum):
    """Which outcomes of the steps that are out bring a parked run back: the last one, the next one, or none."""

    ALL = "all"
    ANY = "any"
    NONE = ""


@dataclass(frozen=True, slots=True)
class StepOptions:
    """What a step's declaration says about its attempts: the queue they go to, how long one may take, and how often
    one is given to a worker that dies of it (None: ``MAX_DELIVERIES``).
    """

    queue: str | None = None
    travels: bool = False
    timeout: timedelta | None = None
    deliveries: int | None = None


@dataclass(frozen=True, slots=True)
class NewStep:
    """An attempt about to be sent, with all that a worker needs to run it: it reads no history."""

    step_id: str
    attempt: int
    step_name: str
    input: Payload
    retry: RetryPolicy
    spec: WorkflowSpec
    queue: str | None = None
    timeout: timedelta | None = None


@dataclass(frozen=True, slots=True)
class StepOut:
    """An attempt that was sent. ``token`` is the fence: it changes with every worker that takes the attempt over.

    ``held``: a worker has it, and is alive as far as one knows. ``timed_out``: its time is over. ``paused``: its run
    is. ``late``: it ran when the run was asked to stop.
    """

    key: int
    run: RunIdentity
    step_id: str
    attempt: int
    token: str
    deliveries: int
    held: bool
    timed_out: bool
    paused: bool
    late: bool
    step_name: str
    input: Payload
    retry: RetryPolicy
    spec: WorkflowSpec
    queue: str | None
    timeout: timedelta | None


class Closed(NamedTuple):
    """An attempt whose output is in the log at ``sequence``; ``wakes``: that is what its run was parked for."""

    sequence: int
    wakes: bool


@dataclass(frozen=True, slots=True)
class DueStep:
    """An attempt to be sent again: its message was lost, its worker has died, or its time is over."""

    run_id: str
    step_id: str
    attempt: int
    build: str | None
    queue: str | None


class StepStore(EventStore, Protocol):
    """What a store adds to the log so that steps can travel. With the one in memory, which does not, they never do."""

    # by the drive, and under the run's lock
    def append_and_send(
        self,
        row: RunRow,
        events: Sequence[NewEvent],
        steps: Sequence[NewStep],
        *,
        change: RunChange,
        epoch: int,
        grace: timedelta,
    ) -> RunRow | None:
        """:meth:`append` and :meth:`send_steps` in one statement, where the database can; None, and nothing is done.

        Repeated after an answer that was lost, it finds both done.
        """

    def send_steps(self, row: RunRow, steps: Sequence[NewStep], *, grace: timedelta) -> None:
        """Note attempts that are about to be sent, in the transaction that appends their start."""

    def steps_out(self, row: RunRow) -> set[str]:
        """Ids of the steps that are out."""

    def recall_steps(self, row: RunRow) -> int:
        """The run is asked to stop: forget what no worker has begun; the rest is *late* now. How many are those?"""

    def wake_steps(self, row: RunRow) -> None:
        """Have the scheduler look at once at what no worker has: the run is no longer paused."""

    # by the worker
    def take_step(
        self,
        run_id: str,
        step_id: str,
        attempt: int,
        *,
        names: Collection[str],
        builds: RuntimeBuildCompatibility | None,
        lease: timedelta,
        worker: str,
    ) -> StepOut | None:
        """Find and claim an attempt in one statement, where the database can and nothing is in the way.

        It must have no worker and time left, its run must not be paused and be of one of the ``builds`` (None: of
        none), and its step one of ``names``. None: find it, and see why. The claim is not durable.
        """

    def find_step(self, run_id: str, step_id: str) -> StepOut | None:
        """The step's attempt that is out, and its run."""

    def claim_step(self, step: StepOut, *, lease: timedelta, worker: str, durable: bool = False) -> StepOut | None:
        """Take the attempt, under a token of its own, and count the delivery. None when somebody else was first.

        Unless it is ``durable``, a crash of the database server may forget it, with nothing committed after it.
        """

    def renew_step(self, step: StepOut, *, lease: timedelta) -> bool:
        """Extend the lease; False when the attempt is somebody else's, has ended, or its time is over."""

    def complete_step(self, step: StepOut, completed: NewEvent) -> Closed | None:
        """Append the output of an attempt and forget it in one statement, where the database can and it is held still.

        None: nothing is written, and the way through :meth:`lock` says why.
        """

    def close_step(self, step: StepOut, *, overdue: bool) -> bool:
        """Forget the attempt, if it still has this token and, unless ``overdue``, its time is not over."""

    def resend_step(self, step: StepOut, *, grace: timedelta, overdue: bool) -> bool:
        """The same, and note the step's next attempt."""

    def step_is_late(self, step: StepOut) -> bool:
        """Did it run when its run was asked to stop?"""

    # by the scheduler
    def take_due_steps(self, *, limit: int, grace: timedelta) -> list[DueStep]:
        """What is to be sent again, earliest first, each moved on by ``grace`` x 2^dispatches (at most 10 min).

        Call it inside :meth:`transaction`; concurrent callers get disjoint steps where the database can skip locks.
        Steps of paused runs are moved on and left out.
        """

    def next_step_wake(self) -> datetime | None:
        """When the next of them is due."""
