"""Starting a run, idempotently: the same id with the same statement is the same run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple, Protocol, runtime_checkable
from uuid import uuid4

from flow_app.core import events as ev
from flow_app.core.identifiers import check_id, check_run_id
from flow_app.core.payload import Payload
from flow_app.core.ports import NewRun, RunChange, RunRow, WakeReason
from flow_app.core.snapshot import RunStatus
from flow_app.core.spec import WorkflowSpec
from flow_app.engine import shutdown
from flow_app.engine.drive import drive_from_birth
from flow_app.engine.journal import RunIdTakenError
from flow_app.engine.services import Meta, Services
from flow_app.errors import (
    InvalidTransitionError,
    InvalidWorkflowError,
    RunConflictError,
    RunNotFoundError,
    RuntimeBuildUnavailableError,
)


@runtime_checkable
class Startable(Protocol):
    """Something that carries a workflow's spec: a function decorated with ``@workflow``."""

    @property
    def spec(self) -> WorkflowSpec: ...


Workflow = str | WorkflowSpec | Startable


@dataclass(frozen=True, slots=True)
class Statement:
    """What the caller said of the run; what he left unsaid is filled in, and never contradicts a recorded run."""

    run_id: str
    spec: WorkflowSpec
    input: Payload
    whole_spec: bool
    version: bool
    build: bool

    def contradiction(self, recorded: ev.RunCreated) -> str | None:
        """How the recorded run differs from what was stated; the spec is compared first."""
        there = recorded.spec
        if self.whole_spec:
            same = self.spec == there
        else:
            same = (
                self.spec.name == there.name
                and (not self.version or self.spec.version == there.version)
                and (not self.build or self.spec.runtime_build_id == there.runtime_build_id)
            )
        if not same:
            return f"its spec is {there.to_tree()}"
        return "its input differs" if recorded.input != self.input else None


@dataclass(frozen=True, slots=True)
class Tags:
    """What a run is found by; not part of its decisions."""

    subject: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)


class Started(NamedTuple):
    """A run that is there; ``is_new`` when this very call wrote it."""

    run_id: str
    is_new: bool


def start(
    services: Services,
    workflow: Workflow,
    input: object,
    *,
    run_id: str | None = None,
    version: str | None = None,
    build: str | None = None,
    tags: Tags = Tags(),
    meta: Meta | None = None,
) -> Started:
    """Write the run in the caller's transaction and dispatch it; see :meth:`FlowEngine.ensure_started`."""
    statement = _statement(services, workflow, input, run_id=run_id, version=version, build=build)
    _check_tags(tags)
    try:
        services.admit(statement.run_id, statement.spec.runtime_build_id, or_routed=True)
    except RuntimeBuildUnavailableError:
        if not _exists(services, statement.run_id):
            raise
        return _start_again(services, statement)
    new_run = _new_run(services, statement, tags)
    first = (ev.RunCreated(statement.spec, statement.input), ev.RunStarted())
    if _is_driven_here(services, new_run):
        try:
            if services.drives_in_call(partial(drive_from_birth, services, new_run, first, meta=meta)):
                return Started(statement.run_id, is_new=True)
        except RunIdTakenError:
            return _start_again(services, statement)
    if _create(services, new_run, first, meta) is None:
        return _start_again(services, statement)
    services.dispatch_drive(statement.run_id, statement.spec.runtime_build_id)
    return Started(statement.run_id, is_new=True)


def _statement(
    services: Services,
    workflow: Workflow,
    input: object,
    *,
    run_id: str | None,
    version: str | None,
    build: str | None,
) -> Statement:
    whole_spec = isinstance(workflow, WorkflowSpec)
    if isinstance(workflow, str):
        check_name = WorkflowSpec(workflow)
        check_name.check()
        spec = services.runtime.workflow_spec(workflow)
    else:
        spec = _stated_spec(workflow)
        spec.check()
        services.runtime.workflow_spec(spec.name)
    pinned = spec.runtime_build_id if build is None else build
    if pinned is None and not whole_spec and services.builds is not None:
        pinned = services.builds.current
    spec = WorkflowSpec(spec.name, spec.version if version is None else version, spec.runtime, pinned)
    spec.check()
    return Statement(
        run_id=check_run_id(uuid4().hex if run_id is None else run_id),
        spec=spec,
        input=Payload.of(input, what="run input", limits=services.options.limits),
        whole_spec=whole_spec,
        version=version is not None,
        build=build is not None,
    )


def _stated_spec(workflow: WorkflowSpec | Startable) -> WorkflowSpec:
    spec: object = workflow if isinstance(workflow, WorkflowSpec) else getattr(workflow, "spec", None)
    if not isinstance(spec, WorkflowSpec):
        raise InvalidWorkflowError(
            f"{workflow!r} is no workflow. Pass its name, its WorkflowSpec, or the function decorated with @workflow."
        )
    return spec


def _check_tags(tags: Tags) -> None:
    if tags.subject:
        check_id(tags.subject, what="subject")
    if not isinstance(tags.labels, Mapping):
        raise InvalidTransitionError(f"labels must be a mapping of texts, not {type(tags.labels).__name__}")
    for name, value in tags.labels.items():
        check_id(name, what="label name")
        if not isinstance(value, str) or len(value) > 200:
            raise InvalidTransitionError(f"label {name!r} must be a string of at most 200 characters")


def _is_driven_here(services: Services, run: NewRun) -> bool:
    """Does this very call drive the run? Then the run, its first decision and its lease are one commit."""
    if shutdown.requested() or services.store.in_caller_transaction():
        return False
    return services.supports(run.build)


def _new_run(services: Services, statement: Statement, tags: Tags) -> NewRun:
    spec = statement.spec
    return NewRun(
        run_id=statement.run_id,
        workflow=spec.name,
        version=spec.version,
        build=spec.runtime_build_id,
        change=RunChange(
            status=RunStatus.RUNNING,
            wake_at=services.store.clock.now() + services.options.dispatch_grace,
            wake_reason=WakeReason.DISPATCHED,
        ),
        subject=tags.subject,
        labels=tags.labels,
    )


def _create(services: Services, new_run: NewRun, first: Sequence[ev.Event], meta: Meta | None) -> RunRow | None:
    events = services.new_events(first, meta=meta)
    row = services.store.create(new_run, events)
    if row is not None:
        services.announce(row, events, after=0)
    return row


def _exists(services: Services, run_id: str) -> bool:
    try:
        services.store.row(run_id)
    except RunNotFoundError:
        return False
    return True


def _start_again(services: Services, statement: Statement) -> Started:
    """The run is there: it is this one, or a conflict. One that is open is driven on.

    Its first event never changes, so nothing is locked: on MariaDB a refused insert leaves a shared lock, and two
    callers that both had one and wanted the row for themselves would deadlock.
    """
    run_id = statement.run_id

    def read() -> RunRow:
        row = services.store.row(run_id)
        recorded = services.store.events_of_type(row, ev.RunCreated.type)
        if not recorded:
            raise RunNotFoundError(run_id)  # retention has just deleted it
        created: Any = recorded[0].event
        contradiction = statement.contradiction(created)
        if contradiction is not None:
            raise RunConflictError(run_id, contradiction)
        return row

    row = services.store.transact(read)
    if not row.status.is_terminal:
        services.admit(run_id, row.build, or_routed=True)
        services.dispatch_drive(run_id, row.build)
    return Started(run_id, is_new=False)
