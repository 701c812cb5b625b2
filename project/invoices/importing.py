"""From the files to runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from django.db import transaction

from flow_app import get_engine
from project.invoices.data import read_file
from project.invoices.models import PurchaseOrder, Vendor
from project.invoices.rows import Row
from project.invoices.script import time_to_answer


def import_vendors_and_orders() -> None:
    """Create what is not there yet."""
    vendors = [Vendor(**row) for row in read_file("vendors.csv")]
    Vendor.objects.bulk_create(vendors, ignore_conflicts=True)
    by_code = Vendor.objects.in_bulk(field_name="code")
    orders = [PurchaseOrder(**{**row, "vendor": by_code[row["vendor"]]}) for row in read_file("purchase_orders.csv")]
    PurchaseOrder.objects.bulk_create(orders, ignore_conflicts=True)


def start_runs(rows: Iterable[Row], *, after_each: Callable[[], None] = lambda: None) -> list[str]:
    """Start one run per invoice, all in one transaction: the whole file is taken, or nothing of it.

    The run ids are stable, so a row that comes twice, today or tomorrow, is one run. ``after_each`` is called on
    commit after each run's own turn.
    """
    run_ids = []
    with transaction.atomic():
        for row in rows:
            run_ids.append(start_run(row))
            transaction.on_commit(after_each)
    return run_ids


def start_run(row: Row) -> str:
    number = row["number"]
    return get_engine().start(
        "invoice",
        {"row": row, "approve_within": time_to_answer(number)},
        run_id=f"invoice-{number}",
        subject=f"invoice:{number}",
        labels={"currency": row["currency"]},
    )
