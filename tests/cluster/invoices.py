"""The example's invoices on a cluster: started here, approved here, and checked to the last cent."""

from __future__ import annotations

import time
from collections.abc import Callable

from flow_app import get_engine
from project.invoices import approver
from project.invoices.data import read_file
from project.invoices.expected import expected_outcomes
from project.invoices.importing import import_vendors_and_orders, start_runs
from project.invoices.report import Report, make_report
from tests.cluster.cluster import Cluster


def pay_invoices(
    cluster: Cluster, *, limit: int | None = None, seconds: float = 120, meanwhile: Callable[[], None] = lambda: None
) -> Report:
    """All have ended as they should, and each paid one was charged once. ``meanwhile`` is called again and again."""
    rows = read_file("invoices.csv")[:limit]
    import_vendors_and_orders()
    open_runs = set(start_runs(rows))
    give_up = time.monotonic() + seconds
    while open_runs:
        meanwhile()
        approver.answer_all(open_runs)
        open_runs = {run_id for run_id in open_runs if not get_engine().row(run_id).status.is_terminal}
        assert time.monotonic() < give_up, f"{len(open_runs)} are still open\n{cluster.report()}"
        time.sleep(0.1)
    report = make_report(rows, expected_outcomes(rows))
    assert report.problems == []
    return report
