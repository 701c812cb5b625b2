"""Currencies and their worth in euros."""

from __future__ import annotations

from decimal import ROUND_HALF_UP, Decimal

CENT = Decimal("0.01")

# Euros for one unit. A real project asks its bank, which is why the workflow reads them in a step.
RATES = {
    "EUR": Decimal("1"),
    "USD": Decimal("0.8614"),
    "GBP": Decimal("1.1482"),
    "CHF": Decimal("1.0671"),
    "SEK": Decimal("0.0912"),
    "PLN": Decimal("0.2357"),
    "JPY": Decimal("0.0056"),
}

APPROVAL_LIMIT = Decimal("10000.00")  # in euros; invoices above it need a person's approval


def in_euros(amount: Decimal, rate: Decimal) -> Decimal:
    return (amount * rate).quantize(CENT, rounding=ROUND_HALF_UP)


def needs_approval(amount: Decimal, rate: Decimal) -> bool:
    return in_euros(amount, rate) > APPROVAL_LIMIT
