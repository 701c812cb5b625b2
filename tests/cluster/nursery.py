"""A process that has everything imported and forks workers and beats from itself: starting one takes no second.

Reads one JSON object per line, ``{"argv": [...], "env": {...}, "log": path}``, and answers with a process id. Each
child leads a process group of its own. When the input ends, whoever is left is killed.
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import sys
import traceback
from contextlib import suppress
from typing import NoReturn

# Nothing of Django's settings may be touched before the fork: each child brings its own.
_HEAVY = [
    "celery.app.amqp",
    "celery.apps.beat",
    "celery.apps.worker",
    "celery.bin.celery",
    "celery.concurrency.prefork",
    "celery.concurrency.thread",
    "celery.fixups.django",
    "django.contrib.auth",
    "django.core.mail",
    "django.db.models",
    "django.forms",
    "django.template",
    "django.test",
    "kombu.transport.pyamqp",
    "kombu.transport.redis",
]
_DRIVERS = ["psycopg", "MySQLdb", "sqlite3"]
_TO_ALL = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)  # what a terminal, or timeout(1), sends to a whole group


def main() -> None:
    for name in _HEAVY:
        importlib.import_module(name)
    for name in _DRIVERS:
        with suppress(ImportError):
            importlib.import_module(name)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for them: they must not stay as zombies
    for number in _TO_ALL:
        signal.signal(number, signal.SIG_IGN)  # the end of the input tells, and then the children have to be ended
    born: list[int] = []
    for line in sys.stdin:
        born.append(_bear(**json.loads(line)))
        print(born[-1], flush=True)  # noqa: T201
    for child in born:
        with suppress(ProcessLookupError):
            os.killpg(child, signal.SIGKILL)


def _bear(*, argv: list[str], env: dict[str, str], log: str) -> int:
    child = os.fork()
    if child == 0:
        _live(argv, env, log)
    # Both set it, so that the group is there whoever comes first.
    with suppress(PermissionError, ProcessLookupError):
        os.setpgid(child, child)
    return child


def _live(argv: list[str], env: dict[str, str], log: str) -> NoReturn:
    status = 1
    try:
        with suppress(PermissionError):
            os.setpgid(0, 0)
        for number in (signal.SIGCHLD, *_TO_ALL):
            signal.signal(number, signal.SIG_DFL)
        output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        for stream in (1, 2):
            os.dup2(output, stream)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.environ.update(env)
        status = _run_celery(argv)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def _run_celery(argv: list[str]) -> int:
    import django

    django.setup()
    importlib.import_module("tests.cluster.workflows")
    from project.celery import app
    from tests.cluster import sabotage

    sabotage.prepare()
    try:
        app.start(argv=argv)
    except SystemExit as ending:
        return ending.code if isinstance(ending.code, int) else 0
    return 0


if __name__ == "__main__":
    main()
