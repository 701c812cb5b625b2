"""``manage.py flow_scheduler``: wake what is due, until told to stop."""

from __future__ import annotations

import signal
import threading
from argparse import ArgumentParser
from datetime import timedelta
from typing import Any

from django.core.management.base import BaseCommand
from django.db import close_old_connections

from flow_app import get_engine
from flow_app.dispatch import FlowScheduler

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
        while True:
            report = scheduler.tick()
            if options["verbosity"] > 1 or options["once"]:
                sent, left, failed = len(report.dispatched), len(report.left), len(report.failed)
                self.stdout.write(f"{sent} dispatched, {left} without a route, {failed} failed")
            if options["once"] or stop.is_set():
                return
            delay = scheduler.next_wakeup_delay()
            stop.wait(min(_LONGEST_SLEEP, _LONGEST_SLEEP if delay is None else delay).total_seconds())
            close_old_connections()
