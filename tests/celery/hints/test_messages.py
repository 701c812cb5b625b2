"""What goes over the broker, when, and what happens when it cannot."""

from __future__ import annotations

import logging
from datetime import timedelta
from threading import Thread
from types import SimpleNamespace

import pytest
from celery import Celery, Task
from django.db import connections, transaction
from django.test import TestCase
from kombu.exceptions import OperationalError

from flow_app import RetryPolicy, get_engine, step, workflow
from flow_app.core import tasks
from flow_app.core.tasks import RunStep
from flow_app.dispatch import FlowScheduler, handle_task
from flow_app.dispatch.celery import CeleryDispatcher
from flow_app.errors import HookTokenNotFoundError, RunNotFoundError
from project.celery import app as project_app

NAMES = ("flow_app.drive_run", "flow_app.run_step", "flow_app.start_run", "flow_app.tick")


@pytest.fixture
def away():
    """A broker that is away, until ``away.undo()``."""

    def refuse(*args, **kwargs):
        raise OperationalError("connection refused")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(project_app.amqp, "send_task_message", refuse)
        yield patch


def test_a_start_sends_the_run_s_id_and_nothing_else(engine, post, asks):
    run_id = engine.start(asks, {"card": "4111-1111"}, subject="order:7", labels={"tenant": "acme"})
    (sent,) = post.take()
    assert (sent.task, sent.args, sent.kwargs) == ("flow_app.drive_run", (run_id,), {})
    assert not any(secret in sent.text for secret in ("4111-1111", "order:7", "acme"))
    assert (sent.headers["eta"], sent.headers["expires"], sent.headers["ignore_result"]) == (None, None, True)
    assert engine.row(run_id).last_sequence == 2  # nothing was driven in the call


def test_the_message_drives_the_run_and_the_answer_drives_it_on(engine, post, asks):
    run_id = engine.start(asks)
    post.deliver_all()
    assert engine.resume_hook(run_id, "answer", {"ok": True})
    (sent,) = post.deliver_all()
    assert (sent.task, sent.args) == ("flow_app.drive_run", (run_id,))
    assert engine.snapshot(run_id).output == {"ok": True}


@pytest.mark.parametrize("name", NAMES)
def test_the_tasks_can_be_repeated_and_lost_and_no_clock_of_celery_stops_them(flow_app, name):
    CeleryDispatcher(get_engine())
    task = project_app.tasks[name]
    assert (task.acks_late, task.reject_on_worker_lost, task.ignore_result) == (True, False, True)
    assert (task.time_limit, task.soft_time_limit) == (None, None)


# --- when it is sent ------------------------------------------------------------------------------------------------


def test_inside_a_transaction_it_is_sent_on_commit(engine, post, asks):
    with transaction.atomic():
        engine.start(asks)
        assert post.take() == []
    assert len(post.take()) == 1


def test_what_is_rolled_back_sends_nothing(engine, post, asks):
    with transaction.atomic():
        run_id = engine.start(asks)
        transaction.set_rollback(True)
    with pytest.raises(RunNotFoundError):
        engine.row(run_id)
    assert post.take() == []


def test_a_dispatcher_that_is_called_by_hand_waits_for_the_commit_too(engine, post, asks):
    run_id = engine.start(asks)
    post.take()
    with transaction.atomic():
        engine.services.dispatcher.dispatch(tasks.DriveRun(run_id))
        assert post.take() == []
    assert [sent.args for sent in post.take()] == [(run_id,)]


class TestInATestCase(TestCase):
    def test_messages_go_out_at_once_for_nothing_is_ever_committed(self):
        workflow("plain")(lambda ctx: ctx.complete())
        with self.settings(FLOW_APP={"DISPATCHER": "flow_app.dispatch.CeleryDispatcher"}):
            run_id = get_engine().start("plain")
            with project_app.connection_for_read() as connection, connection.SimpleQueue("celery") as letters:
                assert letters.get_nowait().payload[0] == [run_id]


# --- what never goes out --------------------------------------------------------------------------------------------

VERBS = [
    tasks.ResumeHook("run", "answer", {"card": "4111-1111"}),
    tasks.ResumeHookByToken("a-secret-token", {"card": "4111-1111"}),
    tasks.DisposeHook("run", "answer"),
    tasks.DisposeHookByToken("a-secret-token"),
]


@pytest.mark.parametrize("task", VERBS, ids=lambda task: task.type)
def test_a_task_with_a_payload_or_token_is_committed_first_and_only_a_hint_goes_out(engine, post, asks, task):
    engine.start(asks, run_id="run")
    post.deliver_all()
    engine.services.dispatcher.dispatch(task)
    assert engine.list_active_hooks() == []  # the verb has committed
    (sent,) = post.take()
    assert (sent.task, sent.args, sent.kwargs) == ("flow_app.drive_run", ("run",), {})
    assert not any(secret in sent.text for secret in ("4111-1111", "a-secret-token"))


def test_the_answer_to_such_a_task_is_the_verb_s(engine):
    with pytest.raises(HookTokenNotFoundError):
        engine.services.dispatcher.dispatch(tasks.ResumeHookByToken("no such token"))


def test_due_scans_send_a_hint_for_each_run(engine, post):
    tries = []

    @step("fails")
    def fails(ctx):
        tries.append(ctx.attempt)
        raise ValueError("not yet")

    @workflow("naps")
    def naps(ctx):
        if not ctx.wait_completed("nap"):
            return ctx.wait_until("nap", engine.store.clock.now() + timedelta(hours=1))
        return ctx.complete()

    for run_id in ("n1", "n2"):
        engine.start(naps, run_id=run_id)
    post.deliver_all()
    dispatcher = engine.services.dispatcher
    dispatcher.dispatch(tasks.ResumeDueWaits(engine.store.clock.now() + timedelta(hours=2)))
    assert sorted(sent.args for sent in post.deliver_all()) == [("n1",), ("n2",)]
    assert [engine.snapshot(run_id).status for run_id in ("n1", "n2")] == ["completed", "completed"]


def test_due_retries_are_sent_and_not_driven_in_the_call(engine, post):
    @step("fails")
    def fails(ctx):
        raise ValueError("not yet")

    @workflow("tries")
    def tries(ctx):
        return ctx.schedule_step("s", fails, retry=RetryPolicy.fixed(3, timedelta(hours=1)))

    engine.start(tries, run_id="t1")
    post.deliver_all()
    before = engine.row("t1").last_sequence
    engine.services.dispatcher.dispatch(tasks.ResumeDueRetries(engine.store.clock.now() + timedelta(hours=2)))
    assert [(sent.task, sent.args) for sent in post.take()] == [("flow_app.drive_run", ("t1",))]
    assert engine.row("t1").last_sequence == before


# --- the broker is away ---------------------------------------------------------------------------------------------


def test_field_report_10_broker_down_after_commit(engine, post, asks, away, overdue, caplog):
    """The caller gets its answer, the run is there, and the tick sends it once the broker is back."""
    with caplog.at_level(logging.WARNING, "flow_app.dispatch"):
        run_id = engine.start(asks)
    assert engine.row(run_id).wake_reason == "dispatched"
    assert "the broker is away" in caplog.text
    away.undo()
    overdue()
    report = FlowScheduler(engine).tick()
    assert report.run_ids == [run_id]
    post.deliver_all()
    assert [hook.run_id for hook in engine.list_active_hooks()] == [run_id]


def test_field_report_10_a_publish_that_raised_may_have_been_sent(engine, post, asks, overdue, monkeypatch):
    send = project_app.amqp.send_task_message

    def send_and_raise(*args, **kwargs):
        send(*args, **kwargs)
        raise ConnectionResetError("after the last byte")

    with monkeypatch.context() as patch:
        patch.setattr(project_app.amqp, "send_task_message", send_and_raise)
        run_id = engine.start(asks)
    overdue()
    assert FlowScheduler(engine).tick().run_ids == [run_id]
    first, second = post.take()
    post.deliver(first)
    before = engine.row(run_id).last_sequence
    post.deliver(second)
    assert engine.row(run_id).last_sequence == before


def test_an_answer_is_committed_and_confirmed_while_the_broker_is_away(engine, post, asks, away):
    run_id = engine.start(asks, run_id="r1")
    engine.resume_scheduled_run(run_id)
    assert engine.resume_hook(run_id, "answer", 1) is True
    assert engine.resume_hook(run_id, "answer", 1) is False
    assert engine.row(run_id).wake_reason == "runnable"


def test_field_report_22_the_repeated_request_sends_what_the_first_one_could_not(engine, post, asks, away):
    run_id = engine.start(asks, run_id="r1")
    engine.resume_scheduled_run(run_id)
    assert engine.resume_hook(run_id, "answer", 1) is True
    away.undo()
    assert engine.resume_hook(run_id, "answer", 1) is False
    assert [sent.args for sent in post.deliver_all()] == [(run_id,)]
    assert engine.snapshot(run_id).output == 1


def test_field_report_11_a_tick_does_not_flood_workers_that_take_nothing(engine, post, asks, overdue):
    run_ids = sorted(engine.start(asks) for _ in range(5))
    post.take()  # all lost
    overdue()
    for _ in range(10):
        project_app.tasks["flow_app.tick"]()
    assert sorted(sent.args[0] for sent in post.take()) == run_ids  # one hint each within the grace


# --- any project's Celery -------------------------------------------------------------------------------------------


class WithTenant(Task):
    """A project's task class that adds to every message."""

    def apply_async(self, args=None, kwargs=None, **options):
        return super().apply_async(args, kwargs, headers={"tenant": "acme"}, **options)


def test_the_project_s_task_class_is_used(engine, asks, use_app):
    post = use_app(Celery("tenants", broker="memory://", task_cls=WithTenant))
    run_id = engine.start(asks)
    (sent,) = post.take()
    assert (sent.args, sent.headers["tenant"]) == ((run_id,), "acme")


def test_the_project_s_routing_decides_where_no_build_does(engine, asks, use_app):
    app = Celery("routed", broker="memory://")
    app.conf.task_routes = {"flow_app.drive_run": {"queue": "work"}, "flow_app.*": {"queue": "control"}}
    post = use_app(app)
    engine.start(asks)
    app.tasks["flow_app.tick"].apply_async()
    assert [sent.task for sent in post.take("work")] == ["flow_app.drive_run"]
    assert [sent.task for sent in post.take("control")] == ["flow_app.tick"]
    assert post.queues() == set()


def test_an_app_without_django_s_fixup(engine, asks, use_app):
    """Then there is no ``delay_on_commit``, and nobody closes connections around a task."""
    app = Celery("plain", broker="memory://", fixups=[])
    post = use_app(app)
    assert not hasattr(app.Task, "delay_on_commit")
    with transaction.atomic():
        run_id = engine.start(asks)
    assert [sent.args for sent in post.deliver_all()] == [(run_id,)]
    assert engine.list_active_hooks()


def test_another_thread_sends_too(engine, post, asks):
    def send():
        try:
            engine.start(asks, run_id="r1")
        finally:
            connections.close_all()

    thread = Thread(target=send)
    thread.start()
    thread.join()
    assert [sent.args for sent in post.take()] == [("r1",)]


def test_the_engine_of_another_database_says_which(flow_app, post):
    store = SimpleNamespace(using="archive", on_commit=lambda act: act())
    engine = SimpleNamespace(
        store=store,
        services=SimpleNamespace(options=SimpleNamespace(build={})),
        supports_runtime_build=lambda build: build is None,
    )
    CeleryDispatcher(engine).dispatch_for_build(None, tasks.DriveRun("r1"))
    (sent,) = post.take()
    assert (sent.args, sent.kwargs) == (("r1",), {"using": "archive"})


# --- steps that travel ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("queue", [None, "gpu"])
def test_a_step_of_its_own_goes_where_it_says(engine, post, queue):
    engine.services.dispatcher.dispatch_step(RunStep("r1", "s", 2), build=None, queue=queue)
    (sent,) = post.take(queue or "celery")
    assert (sent.task, sent.args, sent.kwargs) == ("flow_app.run_step", ("r1", "s", 2), {})


def test_a_step_is_dispatched_as_any_task_is(engine, post):
    engine.services.dispatcher.dispatch_for_build(None, RunStep("r1", "s", 1))
    assert [sent.task for sent in post.take()] == ["flow_app.run_step"]


def test_in_eager_mode_what_a_message_sends_waits_for_its_end(engine, celery_conf):
    """Else each step would be called by the one before it, until Python's stack is full."""
    celery_conf(task_always_eager=True)
    inside = []

    @step("job", dispatch="task")
    def job(ctx):
        inside.append(ctx.step_id)
        if ctx.step_id == "s0":
            engine.start("chain", 1, run_id="other")
            assert engine.snapshot("other").status == "running"

    @workflow("chain")
    def chain(ctx):
        for number in range(ctx.input):
            if not ctx.step_completed(f"s{number}"):
                return ctx.schedule_step(f"s{number}", job)
        return ctx.complete()

    @workflow("batch")
    def batch(ctx):
        if all(ctx.step_completed(step_id) for step_id in "abc"):
            return ctx.complete()
        return ctx.schedule_steps([ctx.step(step_id, job) for step_id in "abc"])

    engine.start(chain, 100, run_id="long")
    engine.start(batch, run_id="wide")
    assert [engine.snapshot(run_id).status for run_id in ("long", "other", "wide")] == ["completed"] * 3
    assert len(inside) == 104


def test_an_inline_worker_still_handles_what_celery_sends(engine, post, asks):
    run_id = engine.start(asks)
    assert handle_task(engine, tasks.DriveRun(run_id)).run_ids == (run_id,)
