"""``manage.py flow_scheduler``: wake what is due, until told to stop."""

from __future__ import annotations

import logging
import signal
import threading
from argparse import ArgumentParser
from datetime import timedelta
from typing import Any

from django.core.management.base import BaseCommand
from django.db import close_old_connections

from flow_app import get_engine
from flow_app.dispatch import FlowScheduler

logger = logging.getLogger("flow_app.dispatch")

#: Another process may start a run that is due sooner than what this one knows of.
_LONGEST_SLEEP = timedelta(seconds=1)


class Command(BaseCommand):
    help = "Dispatch every run that is due: timers, retries, lost messages, dead workers."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--once", action="store_true", help="Tick once and exit.")
        parser.add_argument("--database", help="Database alias; default: FLOW_APP['DATABASE'].")

    def handle(self, *args: Any, **options: Any) -> None:
        scheduler = FlowScheduler(get_engine(options["database"]))
        stop = threading.Event()
        if not options["once"]:
            for number in (signal.SIGTERM, signal.SIGINT):
                signal.signal(number, lambda *_: stop.set())
            self._run_until(stop, scheduler, verbose=options["verbosity"] > 1)
        else:
            self._tick(scheduler, verbose=True)

    def _run_until(self, stop: threading.Event, scheduler: FlowScheduler, *, verbose: bool) -> None:
        """Tick and sleep. What goes wrong in one tick is logged: this process is what brings every run back."""
        while not stop.is_set():
            delay: timedelta | None = None
            try:
                self._tick(scheduler, verbose=verbose)
                delay = scheduler.next_wakeup_delay()
            except Exception:
                logger.exception("A tick failed; the next one follows")
            stop.wait(min(_LONGEST_SLEEP, _LONGEST_SLEEP if delay is None else delay).total_seconds())
            close_old_connections()

    def _tick(self, scheduler: FlowScheduler, *, verbose: bool) -> None:
        report = scheduler.tick()
        if verbose:
            sent, left, failed = len(report.dispatched), len(report.left), len(report.failed)
            self.stdout.write(f"{sent} dispatched, {left} without a route, {failed} failed")
