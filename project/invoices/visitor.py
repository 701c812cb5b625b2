"""What ``make site`` leaves to its visitor: runs to approve, one to cancel, one that is blocked, and one to start."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any
from urllib.parse import urlencode

from django.contrib.auth import get_user_model
from django.urls import reverse

from flow_app import get_engine
from project.invoices.models import PurchaseOrder, Vendor
from project.invoices.rows import Row

NAME = "visitor"
DAYS_TO_ANSWER = 3


@dataclass(frozen=True)
class Left:
    """A run for the visitor. ``says``: which part of the input it is started with."""

    run_id: str
    row: Row
    says: tuple[str, ...] = ("row", "approve_within")


def _row(number: str, vendor: str, amount: str, currency: str, description: str) -> Row:
    return {
        "number": number,
        "vendor": vendor,
        "order": f"PO-{number}",
        "amount": amount,
        "currency": currency,
        "issued": "2026-06-01",
        "due": "2026-07-31",
        "description": description,
    }


# All are above the limit, so they wait for somebody. For the first one the gateway then has a bad day.
TO_APPROVE = (
    Left("approve-me-1", _row("2026-9004", "V-105", "48200.00", "CHF", "Warehousing")),
    Left("approve-me-2", _row("2026-9010", "V-101", "31150.40", "EUR", "Electricity")),
    Left("approve-me-3", _row("2026-9009", "V-112", "12990.00", "GBP", "Sea freight")),
)
TO_CANCEL = Left("cancel-me", _row("2026-9011", "V-109", "20480.00", "EUR", "Steel parts"))
# Started by somebody who forgot until when an answer is wanted: the workflow looks for it, and cannot go on.
BLOCKED = Left("blocked-run", _row("2026-9013", "V-111", "15300.00", "EUR", "Vehicle repairs"), says=("row",))
TO_START = _row("2026-9014", "V-103", "27400.00", "USD", "Office paper")


def leave_runs() -> set[str]:
    """Start the runs; those that were started before stay as they are. Returns their ids."""
    left = (*TO_APPROVE, TO_CANCEL, BLOCKED)
    _order([TO_START, *(run.row for run in left)])
    return {_start(run) for run in left}


def are_settled(run_ids: Iterable[str]) -> bool:
    """Has every run come as far as it can without the visitor?"""
    rows = map(get_engine().row, run_ids)
    return all(row.status.is_terminal or row.wake_reason == "hook" or row.blocked_code for row in rows)


def let_in() -> str:
    """The password of a superuser called ``NAME``, a new one each time."""
    password = secrets.token_urlsafe(9)
    user, _ = get_user_model().objects.update_or_create(
        username=NAME, defaults={"is_staff": True, "is_superuser": True, "is_active": True}
    )
    user.set_password(password)
    user.save()
    return password


def start_address() -> str:
    """The form that starts a run, filled in with an invoice that nobody has sent yet."""
    values = {"row": TO_START, "approve_within": DAYS_TO_ANSWER}
    link = {
        "workflow": "invoice",
        "subject": f"invoice:{TO_START['number']}",
        "input": json.dumps(values, indent=2),
    }
    return f"{reverse('admin:flow_app_run_start')}?{urlencode(link)}"


def _order(rows: Iterable[Row]) -> None:
    """Every invoice has an order of its own, which it uses up."""
    vendors = Vendor.objects.in_bulk(field_name="code")
    orders = [
        PurchaseOrder(
            number=row["order"], vendor=vendors[row["vendor"]], amount=Decimal(row["amount"]), currency=row["currency"]
        )
        for row in rows
    ]
    PurchaseOrder.objects.bulk_create(orders, ignore_conflicts=True)


def _start(left: Left) -> str:
    values: dict[str, Any] = {"row": left.row, "approve_within": DAYS_TO_ANSWER}
    return get_engine().start(
        "invoice",
        {name: values[name] for name in left.says},
        run_id=left.run_id,
        subject=f"invoice:{left.row['number']}",
        labels={"currency": left.row["currency"], "for": NAME},
    )
