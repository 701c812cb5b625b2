"""Writes the files next to it. Deterministic: ``python -m project.invoices.data.generate`` changes nothing."""

from __future__ import annotations

import csv
import random
from collections.abc import Iterable
from datetime import date, timedelta
from decimal import ROUND_HALF_UP, Decimal

from project.invoices.data import HERE

VENDORS = [
    ("V-101", "Nordlicht Energie GmbH", "EUR", "Electricity"),
    ("V-102", "Brasserie Lumen SARL", "EUR", "Catering"),
    ("V-103", "Keystone Paper Co.", "USD", "Office paper"),
    ("V-104", "Harbour & Finch Ltd", "GBP", "Legal advice"),
    ("V-105", "Alpenblick Logistik AG", "CHF", "Warehousing"),
    ("V-106", "Fjällrim Möbler AB", "SEK", "Desks and chairs"),
    ("V-107", "Wisła Software sp. z o.o.", "PLN", "Software licences"),
    ("V-108", "Kitsune Instruments KK", "JPY", "Laboratory sensors"),
    ("V-109", "Ostrava Steel s.r.o.", "EUR", "Steel parts"),
    ("V-110", "Blue Mesa Hosting Inc.", "USD", "Hosting"),
    ("V-111", "Talleres Íñigo S.L.", "EUR", "Vehicle repairs"),
    ("V-112", "Meridian Freight plc", "GBP", "Sea freight"),
]
UNITS_PER_EURO = {"EUR": 1, "USD": 1.15, "GBP": 0.87, "CHF": 0.94, "SEK": 11, "PLN": 4.2, "JPY": 180}
FIELDS = ["number", "vendor", "order", "amount", "currency", "issued", "due", "description"]

# What is wrong with which row, and how: {row: {field: what it says instead}}.
PLANTED = {
    11: {"vendor": ""},
    24: {"amount": "-340.00"},
    37: {"amount": "1.234,50"},
    52: {"currency": "XBT"},
    68: {"issued": "2026-02-30"},
    83: {"amount": "12O.00"},
    97: {"order": "   "},
    110: {"due": "2025-01-01"},
    118: {"amount": "0.00"},
    131: {"amount": "99.995"},
    149: {"currency": "eur"},
    177: {"vendor": "", "amount": "NaN", "due": "soon"},
    31: {"vendor": "V-999"},
    48: {"currency": "CHF"},
    75: {"order": "PO-90001"},
    140: {"order": "PO-90002"},
    163: {"vendor": "V-103", "order": "PO-5001"},
}
OVER_ORDER = {19, 58, 91, 126, 172}  # ask for more than was ordered
SENT_TWICE = {44: 43, 160: 159}  # the very same row again: one invoice
LOOKALIKES = {65: 64, 134: 133}  # the same but for the number: two invoices


def invoices() -> tuple[list[list[str]], list[list[str]]]:
    """All invoice rows, and the purchase orders they name."""
    dice = random.Random(2026)  # noqa: S311
    rows: list[list[str]] = []
    orders: list[list[str]] = []
    for line in range(1, 201):
        code, _, currency, goods = dice.choice(VENDORS)
        amount = _amount(dice, currency)
        if line in SENT_TWICE:
            rows.append(rows[SENT_TWICE[line] - 1])
            continue
        if line in LOOKALIKES:
            rows.append([f"2026-{line:04}", *rows[LOOKALIKES[line] - 1][1:]])
            continue
        order = f"PO-{5000 + line}"
        orders.append([order, code, str(_ordered(line, amount)), currency])
        issued = date(2026, 1, 2) + timedelta(days=dice.randrange(150))
        due = issued + timedelta(days=dice.choice([14, 30, 30, 60]))
        good = {
            "number": f"2026-{line:04}", "vendor": code, "order": order, "amount": str(amount), "currency": currency,
            "issued": issued.isoformat(), "due": due.isoformat(), "description": goods,
        }  # fmt: skip
        rows.append([{**good, **PLANTED.get(line, {})}[field] for field in FIELDS])
    return rows, orders


def _amount(dice: random.Random, currency: str) -> Decimal:
    euros = min(dice.lognormvariate(7.9, 1.4), 90_000)
    exponent = Decimal(1) if currency == "JPY" else Decimal("0.01")
    return Decimal(euros * UNITS_PER_EURO[currency]).quantize(exponent, rounding=ROUND_HALF_UP)


def _ordered(line: int, amount: Decimal) -> Decimal:
    """An order is for at least as much as its invoices, but for a few."""
    if line in OVER_ORDER:
        return (amount * Decimal("0.8")).quantize(amount)
    return amount * (2 if line in LOOKALIKES.values() else 1) + line % 4 * 50


def write(name: str, header: list[str], lines: Iterable[Iterable[str]]) -> None:
    with (HERE / name).open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(header)
        writer.writerows(lines)


def main() -> None:
    rows, orders = invoices()
    vendors = ([code, name, f"billing@{code.lower()}.example.com"] for code, name, *_ in VENDORS)
    write("vendors.csv", ["code", "name", "email"], vendors)
    write("purchase_orders.csv", ["number", "vendor", "amount", "currency"], orders)
    write("invoices.csv", FIELDS, rows)


if __name__ == "__main__":
    main()
