"""Pays the invoices of ``data/invoices.csv``, from the file to the last mail, on a whole Celery system of its own.

Over the memory transport the worker and beat live in this process; over a real broker they are processes.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from flow_app import get_engine
from project import systems
from project.invoices import approver
from project.invoices.data import read_file
from project.invoices.expected import expected_outcomes
from project.invoices.importing import import_vendors_and_orders, start_runs
from project.invoices.progress_bar import ProgressBar
from project.invoices.report import make_report

PATIENCE = 60  # seconds without any run ending (longer than a lease, which a killed process leaves behind)
NAP = 0.1  # seconds between two looks


class Command(BaseCommand):
    help = "Pay the example's invoices and check that every one ended as it should."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--limit", type=int, metavar="N", help="take only the first N rows of the file")
        parser.add_argument("--quiet", action="store_true", help="show no progress, only the table")

    def handle(self, *, limit: int | None, quiet: bool, **options: Any) -> None:
        began = time.monotonic()
        rows = read_file("invoices.csv")[:limit]
        import_vendors_and_orders()
        stream = None if quiet else self.stdout
        with failed_attempts_unlogged(), systems.start() as system:
            run_ids = set(start_runs(rows, after_each=ProgressBar("started", len(rows), stream).advance))
            finish(run_ids, system, ProgressBar("ended", len(run_ids), stream))
        report = make_report(rows, expected_outcomes(rows))
        self.stdout.write(report.table(time.monotonic() - began))
        if report.problems:
            raise CommandError("Not as expected:\n" + "\n".join(report.problems))
        self.stdout.write("Every run ended as it should, and every paid invoice was charged once.")


def finish(run_ids: set[str], system: systems.System, bar: ProgressBar) -> None:
    """Be the people who approve, until all runs have ended; the rest is the system's work."""
    open_runs, changed = still_open(run_ids), time.monotonic()
    bar.show(len(run_ids) - len(open_runs))
    while open_runs:
        approver.answer_all(open_runs)
        left = still_open(open_runs)
        if left != open_runs:
            open_runs, changed = left, time.monotonic()
            bar.show(len(run_ids) - len(open_runs))
        elif time.monotonic() - changed > PATIENCE:
            raise CommandError(f"No run has ended for {PATIENCE} seconds: {', '.join(sorted(open_runs))}")
        system.check()
        time.sleep(NAP)


def still_open(run_ids: set[str]) -> set[str]:
    engine = get_engine()
    return {run_id for run_id in run_ids if not engine.row(run_id).status.is_terminal}


@contextmanager
def failed_attempts_unlogged() -> Iterator[None]:
    """The gateway fails all the time: the table counts it, and a warning for each would bury the bar."""
    logger = logging.getLogger("flow_app.steps")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)
