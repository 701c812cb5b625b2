"""``manage.py flow_scheduler``: wake what is due, until told to stop."""

from __future__ import annotations

import signal
import threading
from argparse import ArgumentParser, ArgumentTypeError
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from django.core.management.base import BaseCommand

from flow_app import get_engine
from flow_app.dispatch import FlowScheduler, TickReport
from flow_app.dispatch.watching import Watch
from flow_app.engine import shutdown

_SIGNALS = (signal.SIGTERM, signal.SIGINT)


class Command(BaseCommand):
    help = (
        "Dispatch every run that is due: timers, retries, lost messages, dead workers. Runs until SIGTERM or Ctrl-C, "
        "beside Celery beat or instead of it; any number may run at once."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--once", action="store_true", help="Tick once and exit.")
        parser.add_argument("--database", help="Database alias; default: FLOW_APP['DATABASE'].")
        parser.add_argument(
            "--poll",
            type=_seconds,
            default=0.05,
            help="Seconds between two looks at what other processes have made due; default: 0.05.",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        scheduler = FlowScheduler(get_engine(options["database"]))
        if options["once"]:
            self._tell(scheduler.tick())
            return
        told = self._tell if options["verbosity"] > 1 else None
        with _stopped_by_signals() as stop:
            Watch(scheduler, longest=options["poll"], told=told).until(stop)

    def _tell(self, report: TickReport) -> None:
        sent = len(report.dispatched) + len(report.steps)
        self.stdout.write(f"{sent} dispatched, {len(report.left)} without a route, {len(report.failed)} failed")


@contextmanager
def _stopped_by_signals() -> Iterator[threading.Event]:
    """The first signal lets the step at hand end, in a tick that drives runs itself; a second one is as elsewhere."""
    stop = threading.Event()
    before = {number: signal.getsignal(number) for number in _SIGNALS}

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    def ask_to_stop(*_: object) -> None:
        stop.set()
        shutdown.request()
        restore()

    for number in _SIGNALS:
        signal.signal(number, ask_to_stop)
    try:
        yield stop
    finally:
        restore()
        shutdown.withdraw()


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0.001 <= seconds <= 3600:
        raise ArgumentTypeError(f"{text!r} is not between 0.001 and 3600 seconds")
    return seconds
