"""System checks of the Celery settings that bite. They run where FLOW_APP['DISPATCHER'] is Celery's."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from importlib import import_module
from typing import Any

from django.apps import AppConfig, apps
from django.conf import settings
from django.core.checks import CheckMessage, Warning, register  # noqa: A004 - Django's own name

from flow_app import conf
from flow_app.authoring import registry
from flow_app.errors import ConfigurationError

_DISPATCHER = "flow_app.dispatch.celery"
_LONG_TASKS = ("flow_app.drive_run", "flow_app.run_step")

#: Seconds until an unacknowledged message is sent again, where the transport counts them.
_VISIBILITY = {"redis": 3600, "rediss": 3600, "sentinel": 3600, "sqs": 1800}

#: Seconds. A limit longer than this is a backstop for what hangs, and not a limit of steps.
_BACKSTOP = 86_400


@register("flow_app")
def check_celery(app_configs: Sequence[AppConfig] | None = None, **kwargs: Any) -> list[CheckMessage]:
    """W010 to W019; nothing where FLOW_APP is not valid, which E001 to E004 say."""
    try:
        options = conf.options()
        if not _is_celery(conf.dispatcher_factory(options.dispatcher)):
            return []
    except ConfigurationError:
        return []
    celery = import_module("celery").current_app
    import_module("flow_app.tasks")
    if (astray := _check_which(celery)) is not None:
        return [astray]  # the others would be about some other app
    return [*_check_app(celery), *_check_tasks(celery), *_check_beat(celery.conf), *_check_queues(celery.conf, options)]


def _is_celery(dispatcher: object) -> bool:
    if isinstance(dispatcher, type):
        return any(base.__module__ == _DISPATCHER for base in dispatcher.__mro__)
    return _DISPATCHER in sys.modules  # a function that makes a router, of whatever


def _warning(number: int, text: str, hint: str) -> CheckMessage:
    return Warning(text, hint=hint, id=f"flow_app.W{number:03}")


def _check_which(celery: Any) -> CheckMessage | None:
    """W010: the app that this process sends by is not the project's, or knows no broker."""
    with ThreadPoolExecutor(1) as threads:
        elsewhere = threads.submit(celery._get_current_object).result()
    if elsewhere is not celery._get_current_object():
        return _warning(
            10,
            "Not every thread of this process finds the project's Celery app, so messages would go to amqp://localhost.",
            "from project.celery import app  # in project/__init__.py; and app.set_default() in project/celery.py",
        )
    if not elsewhere.conf.broker_url:
        return _warning(
            10,
            "This process finds no Celery app that knows a broker, so messages would go to amqp://localhost.",
            "CELERY_BROKER_URL = 'redis://localhost:6379/0'  # and project/__init__.py imports the app",
        )
    return None


def _check_app(celery: Any) -> Iterator[CheckMessage]:
    """W011: eager mode. W012: a broker inside the process."""
    if celery.conf.task_always_eager:
        yield _warning(
            11,
            "Celery is in eager mode: a run is driven in the call that starts it, and a worker gets none.",
            "CELERY_TASK_ALWAYS_EAGER = False, or FLOW_APP = {'DISPATCHER': 'flow_app.dispatch.InlineDispatcher'}",
        )
    if _transport(celery.conf) == "memory" and not settings.DEBUG:
        yield _warning(
            12,
            "Celery's broker is this process's memory: a worker in another process gets no message.",
            'CELERY_BROKER_URL = "redis://localhost:6379/0"',
        )


def _check_tasks(celery: Any) -> Iterator[CheckMessage]:
    """W013: time limits. W014: messages that come back when their worker dies."""
    for name in _LONG_TASKS:
        task = celery.tasks[name]
        limits = (
            task.soft_time_limit or celery.conf.task_soft_time_limit,
            task.time_limit or celery.conf.task_time_limit,
        )
        if any(limit is not None and limit < _BACKSTOP for limit in limits):
            yield _warning(
                13,
                f"{name} has a time limit: Celery kills its steps without a record, and they run again.",
                f'CELERY_TASK_ANNOTATIONS = {{"{name}": {{"soft_time_limit": {_BACKSTOP}, "time_limit": {_BACKSTOP}}}}}'
                "  # a step's own limit is @step(timeout=...)",
            )
        if task.reject_on_worker_lost:
            yield _warning(
                14,
                f"{name} is sent again at once when its worker is killed: a step that kills its worker never ends.",
                f'CELERY_TASK_ANNOTATIONS = {{"{name}": {{"reject_on_worker_lost": False}}}}',
            )


def _check_beat(celery_conf: Any) -> Iterator[CheckMessage]:
    """W015: nobody ticks. W016: ticks that pile up."""
    entries = [entry for entry in celery_conf.beat_schedule.values() if entry["task"] == "flow_app.tick"]
    if not entries and not apps.is_installed("django_celery_beat"):
        yield _warning(
            15,
            "Beat has no entry for flow_app.tick: timers do not fire and lost messages stay lost, unless "
            "manage.py flow_scheduler runs.",
            "CELERY_BEAT_SCHEDULE = {**flow_app.beat.schedule()}",
        )
    if any("expires" not in entry.get("options", {}) for entry in entries):
        yield _warning(
            16,
            "The beat entry for flow_app.tick has no 'expires': while no worker runs, ticks pile up.",
            "CELERY_BEAT_SCHEDULE = {**flow_app.beat.schedule()}",
        )


def _check_queues(celery_conf: Any, options: conf.Options) -> Iterable[CheckMessage]:
    """W017: messages sent again while they are worked on. W018: builds without a queue. W019: queues Celery refuses."""
    transport = _transport(celery_conf)
    visible = (celery_conf.broker_transport_options or {}).get("visibility_timeout") or _VISIBILITY.get(transport, 0)
    needed = options.lease + timedelta(seconds=options.drive_slice.seconds)
    if transport in _VISIBILITY and timedelta(seconds=visible) <= needed:
        yield _warning(
            17,
            f"The broker sends a message again after {visible} s, while it is worked on: a lease and a drive's slice "
            f"are {needed.total_seconds():g} s.",
            'CELERY_BROKER_TRANSPORT_OPTIONS = {"visibility_timeout": 3600}',
        )
    routes = options.build.get("routes", {})
    current = options.build.get("current")
    if routes and current is not None and current not in routes:
        yield _warning(
            18,
            f"FLOW_APP['BUILD'] has routes, but none for the current build {current!r}: its runs go where Celery's own "
            "routing says, and workers of other builds may read that.",
            f"FLOW_APP = {{'BUILD': {{'current': {current!r}, 'routes': {{{current!r}: 'flow-{current}'}}}}}}",
        )
    declared = {getattr(queue, "name", queue) for queue in celery_conf.task_queues or ()}
    missing = sorted({*routes.values(), *_queues_of_steps()} - declared)
    if missing and not celery_conf.task_create_missing_queues:
        yield _warning(
            19,
            f"Celery refuses messages to {', '.join(missing)}: FLOW_APP['BUILD']['routes'] or @step(queue=...) names "
            "queues that CELERY_TASK_QUEUES does not, and CELERY_TASK_CREATE_MISSING_QUEUES is off.",
            "CELERY_TASK_QUEUES = [" + ", ".join(f'Queue("{name}")' for name in missing) + "]",
        )


def _queues_of_steps() -> set[str]:
    queues = (registry.steps.get(name).options.queue for name in registry.steps.names())
    return {queue for queue in queues if queue is not None}


def _transport(celery_conf: Any) -> str:
    """The broker's kind: ``redis``, ``amqp``, ``memory`` ..."""
    url = celery_conf.broker_write_url or celery_conf.broker_url or "amqp://"
    first = url if isinstance(url, str) else next(iter(url), "amqp://")
    return str(celery_conf.broker_transport or first.partition("://")[0]).partition("+")[0]
