"""What the host records about a run from outside: progress, and child tasks of other systems."""

from __future__ import annotations

from flow_app.core import events as ev
from flow_app.core.policy import ChildOperationReference, WorkflowProgress, expect
from flow_app.core.ports import RunChange
from flow_app.engine import rows
from flow_app.engine.services import Meta, Services
from flow_app.errors import ChildOperationConflictError, ProgressConflictError, RunTerminalError


def record(services: Services, run_id: str, progress: WorkflowProgress, *, meta: Meta | None = None) -> bool:
    """Record progress; False when the same was recorded before. See :meth:`FlowEngine.record_progress`."""
    expect(WorkflowProgress, progress, what="progress")
    event = ev.RunProgressRecorded(progress.to_payload(limits=services.options.limits))
    store = services.store

    def write() -> bool:
        row = store.lock(run_id)
        if row.status.is_terminal:
            raise RunTerminalError(run_id, "progress")
        recorded = store.progress(row, event.progress_id)
        if recorded is not None:
            if recorded != event.progress:
                raise ProgressConflictError(run_id, event.progress_id)
            return False
        services.append(row, (event,), change=rows.of_progress((event,)), meta=meta)
        return True

    return store.transact(write)


def link_child(services: Services, run_id: str, child: ChildOperationReference, *, meta: Meta | None = None) -> bool:
    """Link a child operation; False when the same was linked before. See FlowEngine.link_child_operation."""
    expect(ChildOperationReference, child, what="child operation")
    event = ev.ChildOperationLinked(child.to_payload(limits=services.options.limits))
    store = services.store

    def write() -> bool:
        row = store.lock(run_id)
        if row.status.is_terminal:
            raise RunTerminalError(run_id, "child operations")
        linked = store.child_operation(row, event.reference_id)
        if linked is not None:
            if linked != event.child:
                raise ChildOperationConflictError(run_id, event.reference_id)
            return False
        services.append(row, (event,), change=RunChange(), meta=meta)
        return True

    return store.transact(write)
