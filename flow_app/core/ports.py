"""What the engine needs from the world: a store, a clock, code to run, a way to send work, someone who listens."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypedDict, TypeVar, runtime_checkable
from uuid import UUID

from flow_app.core.commands import Command
from flow_app.core.events import Event, EventEnvelope
from flow_app.core.payload import Payload
from flow_app.core.snapshot import HookStatus, OutcomeType, RunStatus
from flow_app.core.spec import WorkflowSpec
from flow_app.core.tasks import FlowTask, RunStep

if TYPE_CHECKING:
    from flow_app.core.context import StepContext, WorkflowContext
    from flow_app.core.remote import StepOptions

T = TypeVar("T")


class WakeReason(StrEnum):
    """Why a run is looked at again at its ``wake_at``, or what it waits for; shown as "why it waits"."""

    RUNNABLE = "runnable"
    DISPATCHED = "dispatched"
    DRIVING = "driving"
    TIMER = "timer"
    HOOK = "hook"
    RETRY = "retry"
    STEPS = "steps"
    BLOCKED = "blocked"
    LOST = "lost"
    PAUSED = "paused"
    NO_WORKER = "no_worker"
    ENDED = "ended"


class Clock(Protocol):
    """The one clock of a deployment. ``in_database``: leases and due times are compared with the database's time."""

    in_database: bool

    def now(self) -> datetime: ...

    def monotonic(self) -> float: ...

    def sleep(self, seconds: float) -> None: ...


@dataclass(frozen=True, slots=True)
class RunRow:
    """A run's row: the projection of its log that the engine decides by, its lease, and its wake-up."""

    key: int
    run_id: str
    workflow: str
    version: str
    build: str | None
    status: RunStatus
    last_sequence: int
    open_waits: int = 0
    active_hooks: int = 0
    pending_retries: int = 0
    timer_at: datetime | None = None
    wake_at: datetime | None = None
    wake_reason: str = WakeReason.RUNNABLE
    dispatches: int = 0
    lease_epoch: int = 0
    lease_expires_at: datetime | None = None
    lost_leases: int = 0
    steps_out: int = 0
    steps_awaited: str = ""
    blocked_code: str = ""
    blocked_text: str = ""
    blocked_since: datetime | None = None
    blocked_count: int = 0
    paused_at: datetime | None = None
    paused_by: str = ""


class RunIdentity(NamedTuple):
    """What never changes about a run's row."""

    key: int
    run_id: str
    workflow: str
    build: str | None


class RunChange(TypedDict, total=False):
    """Columns of the run's row that one append or park sets."""

    status: RunStatus
    outcome: OutcomeType
    finished_at: datetime
    error: str
    open_waits: int
    active_hooks: int
    pending_retries: int
    timer_at: datetime | None
    wake_at: datetime | None
    wake_reason: str
    dispatches: int
    lease_expires_at: datetime | None
    lost_leases: int
    steps_out: int
    steps_awaited: str
    blocked_code: str
    blocked_text: str
    blocked_traceback: str  # of no use to who drives the run: RunRow does without
    blocked_since: datetime | None
    blocked_count: int
    paused_at: datetime | None
    paused_by: str
    progress_completed: int | None
    progress_total: int | None
    progress_message: str


@dataclass(frozen=True, slots=True)
class NewRun:
    """A run about to be created."""

    run_id: str
    workflow: str
    version: str
    build: str | None
    change: RunChange
    subject: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    lease_epoch: int = 0  # 1 for a run that is born under the lease of who starts it

    def row(self, key: int = 0) -> RunRow:
        """Its row before the first event."""
        return RunRow(
            key, self.run_id, self.workflow, self.version, self.build, RunStatus.PENDING, 0,
            lease_epoch=self.lease_epoch,
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class NewEvent:
    """An event about to be appended; its id is made once, so that a repeated append is recognised."""

    event: Event
    event_id: UUID
    recorded_at: datetime
    meta: Mapping[str, Any] = field(default_factory=dict)


class Recorded(NamedTuple):
    """An event as the fold needs it; of when it was recorded, only what :data:`flow_app.core.events.DATED` asks for."""

    sequence: int
    event: Event
    recorded_at: datetime | None


@dataclass(frozen=True, slots=True)
class HookRow:
    """A hook's row. ``received`` is the payload that resolved it."""

    run_id: str
    hook_id: str
    token_digest: str = field(repr=False)
    status: HookStatus
    metadata: Payload
    expires_at: datetime | None
    received: Payload | None


@dataclass(frozen=True, slots=True)
class DueRun:
    """A run whose wake-up is due, as the scheduler takes it."""

    run_id: str
    build: str | None
    reason: str


class EventStore(Protocol):
    """The log and its projections. Appends are compare-and-swap on the run's row; projections move in the same commit.

    Every method may raise RunNotFoundError for an unknown run and StoreError for a row that cannot be read back.
    """

    clock: Clock

    # transactions
    def transaction(self) -> AbstractContextManager[None]:
        """A transaction that joins the caller's, if there is one."""

    def transact(self, act: Callable[[], T]) -> T:
        """Run ``act`` in :meth:`transaction`, again when the database gave up on it: it reads anew what it decides by.

        What stays wrong with the database is a StoreError, and nothing is written. Inside the caller's transaction
        there is one try, and errors go to the caller as they are.
        """

    def in_caller_transaction(self) -> bool:
        """Is a transaction open that the engine did not open (a test case's own does not count)?"""

    def threads_see_writes(self) -> bool:
        """Do other threads see what this one has written? Not inside a test case's transaction."""

    def on_commit(self, act: Callable[[], None]) -> None:
        """Call ``act`` once the caller's transaction commits; at once when there is none. Errors are logged there."""

    # writing
    def create(self, run: NewRun, events: Sequence[NewEvent]) -> RunRow | None:
        """Insert a run with its first events; None when the id is taken. Raises RunConflictError for a deleted id."""

    def append(self, row: RunRow, events: Sequence[NewEvent], *, change: RunChange, epoch: int | None = None) -> RunRow:
        """Append after ``row.last_sequence``; with ``epoch``, only while that lease is held and the run is not paused.

        Returns the row as it then is. Raises EventConflictError, LeaseLostError, HookTokenConflictError,
        RunNotFoundError or RunConflictError (for the target of a child link); then nothing is written.
        """

    def claim(self, run_id: str, *, lease: timedelta, unpinned_only: bool = False) -> RunRow | None:
        """Take the lease of an open run: new epoch, ``wake_at`` = expiry. None when it has ended, is leased or paused.

        With ``unpinned_only`` a run of a build is left as it is, too.
        """

    def park(self, row: RunRow, *, change: RunChange) -> RunRow | None:
        """Change the row if it still ends at ``row.last_sequence`` under lease ``row.lease_epoch``; None if not.

        None, too, when it has been paused since ``row`` was read, or is paused no more.
        """

    def renew(self, row: RunRow, *, lease: timedelta) -> bool:
        """Extend the lease ``row.lease_epoch``, of a paused run without a wake-up; False when it is not held."""

    # reading
    def row(self, run_id: str) -> RunRow: ...

    def lock(self, run_id: str) -> RunRow:
        """The row, locked until the transaction ends; call it inside :meth:`transaction`."""

    def load(self, row: RunRow, *, after: int = 0) -> Iterable[Recorded]:
        """The events after a sequence, in order; inside :meth:`transaction` as they are now, not as it began."""

    def history(self, run_id: str, *, after: int = 0) -> list[EventEnvelope]: ...

    def hook(self, row: RunRow | RunIdentity, hook_id: str) -> HookRow | None: ...

    def active_hooks_by_token(self, token_digest: str) -> list[HookRow]: ...

    def active_hooks(self) -> list[HookRow]:
        """Active hooks of open runs, sorted by run and hook."""

    def progress(self, row: RunRow, progress_id: str) -> Payload | None: ...

    def child_operation(self, row: RunRow, reference_id: str) -> Payload | None: ...

    def events_of_type(self, row: RunRow, event_type: str) -> list[EventEnvelope]: ...

    # many runs
    def run_ids(self) -> list[str]: ...

    def rows(self, *, suspended: bool = False, timer_due: datetime | None = None) -> Iterable[RunRow]:
        """Rows in order of run id: all, or the open ones with something open, or with a timer due that may fire."""

    def summary(self) -> dict[str, int]:
        """Counts by status, and open waits, active hooks and pending retries of open runs."""

    def next_timer(self) -> datetime | None:
        """The earliest timer of all open runs that are not paused."""

    def next_wake(self) -> datetime | None:
        """The earliest ``wake_at`` of all open runs."""

    def take_due(self, *, limit: int, grace: timedelta) -> list[DueRun]:
        """Runs whose ``wake_at`` is due, earliest first, each moved on by ``grace`` x 2^dispatches (at most 10 min).

        Not among them are runs under a live lease, which are moved on to its end, and those that have killed many
        workers in a row: these are put off first, ever longer, with the reason *lost*.

        Call it inside :meth:`transaction`; concurrent callers get disjoint runs where the database can skip locks.
        """

    def due_builds(self) -> set[str | None]:
        """The builds of all runs that are due, or have a step that is; None stands for unpinned runs."""


class Runtime(Protocol):
    """The code of workflows and steps."""

    def run_workflow(self, ctx: WorkflowContext) -> Command:
        """One call of the workflow function."""

    def run_step(self, ctx: StepContext) -> object:
        """One call of a step's body; an exception is a failed attempt."""

    def workflow_spec(self, name: str) -> WorkflowSpec:
        """What a new run of this workflow records. Raises WorkflowNotRegisteredError for an unknown name."""

    def step_options(self, name: str) -> StepOptions:
        """What is declared about the attempts of a step. Raises StepNotRegisteredError for an unknown name."""


class FlowTaskDispatcher(Protocol):
    """How work travels to a worker. A task is a hint: losing it or sending it twice changes nothing for good."""

    def dispatch(self, task: FlowTask) -> None: ...

    def has_route(self, build: str | None) -> bool:
        """Do workers for runs of this build (None: unpinned) read what is dispatched here?"""

    def dispatch_for_build(self, build: str | None, task: FlowTask) -> None:
        """Raises RuntimeBuildRouteNotFoundError when there is no route; else dispatches."""


@runtime_checkable
class StepDispatcher(Protocol):
    """What a dispatcher may have besides: then the members of batches, and steps that say so, travel on their own."""

    def dispatch_step(self, step: RunStep, *, build: str | None, queue: str | None) -> None:
        """Send one attempt to workers of the run's build (None: unpinned), or to the queue that the step names.

        It is a hint like any other: raising, losing it or sending it twice changes nothing for good.
        """


@runtime_checkable
class SharedWorkers(Protocol):
    """What a dispatcher of steps may have besides: then a worker goes on with what it would send to its own kind."""

    def same_workers(self, run_id: str, build: str | None) -> bool:
        """Do the drives of this run and its steps without a queue of their own go to the same workers?"""


@runtime_checkable
class NamesSteps(Protocol):
    """What a runtime may have besides: then a step's message need not be looked at before it is taken."""

    def step_names(self) -> Collection[str]:
        """Steps whose code is here and whose deliveries need not be counted exactly."""


class Observer(Protocol):
    """Told of every event after its commit, in order. What it raises is logged and changes nothing."""

    def on_event(self, envelope: EventEnvelope) -> None: ...
