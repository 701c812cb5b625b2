"""What every row of the file must come to, worked out without running anything."""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal
from typing import Any

from project.invoices import gateway, money, rows
from project.invoices.data import read_file
from project.invoices.matching import mismatch
from project.invoices.outcomes import Outcome
from project.invoices.script import Answer, answer_to

CHARGE_ATTEMPTS = 5  # stated here too: a changed policy must be noticed

ANSWERS = {
    Answer.REJECT: Outcome.NOT_APPROVED,
    Answer.WITHDRAW: Outcome.WITHDRAWN,
    Answer.SILENCE: Outcome.NO_ANSWER,
}


def expected_outcomes(file: Iterable[rows.Row]) -> dict[str, Outcome]:
    """The outcome of each invoice by its number."""
    vendors = {row["code"]: row for row in read_file("vendors.csv")}
    orders = {row["number"]: row for row in read_file("purchase_orders.csv")}
    return {row["number"]: _outcome(row, vendors, orders) for row in file}


def _outcome(row: rows.Row, vendors: dict[str, rows.Row], orders: dict[str, rows.Row]) -> Outcome:
    facts, problems = rows.read(row)
    if problems:
        return Outcome.INVALID
    vendor, order = vendors.get(facts["vendor"]), orders.get(facts["order"])
    if mismatch(facts, vendor, order and {**order, "vendor__code": order["vendor"]}):
        return Outcome.UNMATCHED
    # Orders that several invoices share are large enough for all of them, so the order of arrival does not matter.
    if order and facts["amount"] > Decimal(order["amount"]):
        return Outcome.NOT_COVERED
    return _of_approval(facts) or _of_payment(facts)


def _of_approval(facts: dict[str, Any]) -> Outcome | None:
    if not money.needs_approval(facts["amount"], money.RATES[facts["currency"]]):
        return None
    return ANSWERS.get(answer_to(facts["number"]))


def _of_payment(facts: dict[str, Any]) -> Outcome:
    moods = [gateway.mood(facts["number"], attempt) for attempt in range(1, CHARGE_ATTEMPTS + 1)]
    return Outcome.PAID if gateway.Mood.FINE in moods else Outcome.UNPAYABLE
