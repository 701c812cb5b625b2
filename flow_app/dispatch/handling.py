"""What a worker does with a task: call the engine's verb, and report what that committed."""

from __future__ import annotations

from functools import singledispatch

from flow_app.core import tasks
from flow_app.core.tasks import FlowTask, TaskOutcome
from flow_app.engine import FlowEngine


def handle_task(engine: FlowEngine, task: FlowTask) -> TaskOutcome:
    """Handle one task. Raises what the engine raises: then nothing of it is acknowledged, and it may come again."""
    return _handle(task, engine)


@singledispatch
def _handle(task: FlowTask, engine: FlowEngine) -> TaskOutcome:
    raise TypeError(f"{type(task).__name__} is no task of this engine")


@_handle.register
def _(task: tasks.DriveRun, engine: FlowEngine) -> TaskOutcome:
    return _scheduled(task, engine, task.run_id)


@_handle.register
def _(task: tasks.ResumeScheduledRun, engine: FlowEngine) -> TaskOutcome:
    return _scheduled(task, engine, task.run_id)


@_handle.register
def _(task: tasks.RunStep, engine: FlowEngine) -> TaskOutcome:
    settled = engine.run_step(task.run_id, task.step_id, task.attempt)
    return TaskOutcome(task, run_ids=(task.run_id,) if settled else ())


def _scheduled(task: FlowTask, engine: FlowEngine, run_id: str) -> TaskOutcome:
    now = task.now if isinstance(task, tasks.ResumeScheduledRun) else None
    wakeups = engine.resume_scheduled_run(run_id, now)
    return TaskOutcome(
        task,
        run_ids=(run_id,),
        resumed_waits=tuple((item.run_id, item.subject_id) for item in wakeups if item.kind == "wait"),
        resumed_retries=tuple((item.run_id, item.subject_id) for item in wakeups if item.kind == "retry"),
    )


@_handle.register
def _(task: tasks.ResumeWait, engine: FlowEngine) -> TaskOutcome:
    resumed = engine.resume_wait(task.run_id, task.wait_id)
    return TaskOutcome(task, (task.run_id,), resumed_waits=((task.run_id, task.wait_id),) if resumed else ())


@_handle.register
def _(task: tasks.ResumeHook, engine: FlowEngine) -> TaskOutcome:
    resumed = engine.resume_hook(task.run_id, task.hook_id, task.payload)
    return TaskOutcome(task, (task.run_id,), resumed_hook=(task.run_id, task.hook_id) if resumed else None)


@_handle.register
def _(task: tasks.ResumeHookByToken, engine: FlowEngine) -> TaskOutcome:
    run_id, hook_id = engine.resume_hook_by_token(task.token, task.payload)
    return TaskOutcome(task, (run_id,), resumed_hook=(run_id, hook_id))


@_handle.register
def _(task: tasks.DisposeHook, engine: FlowEngine) -> TaskOutcome:
    disposed = engine.dispose_hook(task.run_id, task.hook_id)
    return TaskOutcome(task, (task.run_id,), disposed_hook=(task.run_id, task.hook_id) if disposed else None)


@_handle.register
def _(task: tasks.DisposeHookByToken, engine: FlowEngine) -> TaskOutcome:
    run_id, hook_id = engine.dispose_hook_by_token(task.token)
    return TaskOutcome(task, (run_id,), disposed_hook=(run_id, hook_id))


@_handle.register
def _(task: tasks.ResumeDueWaits, engine: FlowEngine) -> TaskOutcome:
    pairs = tuple(engine.resume_due_waits(task.now))
    return TaskOutcome(task, _runs(pairs), resumed_waits=pairs)


@_handle.register
def _(task: tasks.ResumeDueRetries, engine: FlowEngine) -> TaskOutcome:
    pairs = tuple(engine.resume_due_retries(task.now))
    return TaskOutcome(task, _runs(pairs), resumed_retries=pairs)


def _runs(pairs: tuple[tuple[str, str], ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(run_id for run_id, _ in pairs))
