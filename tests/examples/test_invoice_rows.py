"""The pure parts of the invoice example: reading rows, and what every row of the file must come to."""

from __future__ import annotations

from collections import Counter, defaultdict
from decimal import Decimal

import pytest

from project.invoices import rows
from project.invoices.data import generate, read_file
from project.invoices.expected import expected_outcomes
from project.invoices.outcomes import Outcome

GOOD = {
    "number": "2026-0001",
    "vendor": "V-101",
    "order": "PO-5001",
    "amount": "1200.50",
    "currency": "EUR",
    "issued": "2026-03-01",
    "due": "2026-03-31",
    "description": "Electricity",
}


def test_a_good_row_is_read_into_its_types():
    fields, problems = rows.read(GOOD)
    assert problems == []
    assert fields["amount"] == Decimal("1200.50")
    assert fields["due"].isoformat() == "2026-03-31"


@pytest.mark.parametrize(
    ("field", "value", "problem"),
    [
        ("vendor", " ", "the vendor is missing"),
        ("order", "", "the order is missing"),
        ("amount", "-1", "the amount -1 is not positive"),
        ("amount", "0", "the amount 0 is not positive"),
        ("amount", "NaN", "the amount NaN is not positive"),
        ("amount", "Infinity", "the amount 'Infinity' is no number"),
        ("amount", "1e99", "the amount '1e99' is no number"),
        ("amount", "1,5", "the amount '1,5' is no number"),
        ("amount", "1.005", "the amount 1.005 has parts of a cent"),
        ("currency", "eur", "the currency 'eur' is unknown"),
        ("issued", "2026-02-30", "issued is '2026-02-30', which is no date"),
        ("due", "2026-02-28", "it is due before it was issued"),
    ],
)
def test_what_is_wrong_with_a_row_is_said(field, value, problem):
    assert rows.read({**GOOD, field: value})[1] == [problem]


def test_the_files_are_what_the_generator_writes():
    invoices, orders = generate.invoices()
    assert [list(row.values()) for row in read_file("invoices.csv")] == invoices
    assert [list(row.values()) for row in read_file("purchase_orders.csv")] == orders


def test_every_outcome_is_expected_somewhere():
    counts = Counter(expected_outcomes(read_file("invoices.csv")).values())
    assert set(counts) == set(Outcome)
    assert counts.total() == 198


def test_what_was_planted_is_expected_to_be_noticed():
    expected = expected_outcomes(read_file("invoices.csv"))
    noticed = {number for number, outcome in expected.items() if outcome in (Outcome.INVALID, Outcome.UNMATCHED)}
    assert noticed == {f"2026-{line:04}" for line in generate.PLANTED}
    too_large = {number for number, outcome in expected.items() if outcome is Outcome.NOT_COVERED}
    assert too_large == {f"2026-{line:04}" for line in generate.OVER_ORDER}


def test_a_shared_order_covers_all_its_invoices_whatever_comes_first():
    file = {row["number"]: row for row in read_file("invoices.csv")}
    asked = defaultdict(Decimal)
    for number, outcome in expected_outcomes(file.values()).items():
        if outcome not in (Outcome.INVALID, Outcome.UNMATCHED, Outcome.NOT_COVERED):
            asked[file[number]["order"]] += Decimal(file[number]["amount"])
    ordered = {row["number"]: Decimal(row["amount"]) for row in read_file("purchase_orders.csv")}
    assert all(amount <= ordered[order] for order, amount in asked.items())
