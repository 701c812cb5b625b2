"""What a row of the invoice file must look like."""

from __future__ import annotations

from datetime import date
from decimal import Decimal, InvalidOperation
from typing import Any, TypeAlias

from project.invoices.money import CENT, RATES

Row: TypeAlias = dict[str, str]


def read(row: Row) -> tuple[dict[str, Any], list[str]]:
    """The row's fields in their types, and everything that is wrong with it; a wrong field is None."""
    problems: list[str] = []
    fields: dict[str, Any] = {
        "number": row["number"],
        "vendor": _text(row, "vendor", problems),
        "order": _text(row, "order", problems),
        "amount": _amount(row["amount"], problems),
        "currency": _currency(row["currency"], problems),
        "issued": _date(row, "issued", problems),
        "due": _date(row, "due", problems),
    }
    if fields["issued"] and fields["due"] and fields["due"] < fields["issued"]:
        problems.append("it is due before it was issued")
    return fields, problems


def _text(row: Row, field: str, problems: list[str]) -> str | None:
    if text := row[field].strip():
        return text
    problems.append(f"the {field} is missing")
    return None


def _amount(text: str, problems: list[str]) -> Decimal | None:
    try:
        amount = Decimal(text)
        cents = amount.quantize(CENT)
    except InvalidOperation:
        problems.append(f"the amount {text!r} is no number")
        return None
    if amount.is_nan() or amount <= 0:
        problems.append(f"the amount {text} is not positive")
    elif amount != cents:
        problems.append(f"the amount {text} has parts of a cent")
    else:
        return cents
    return None


def _currency(code: str, problems: list[str]) -> str | None:
    if code in RATES:
        return code
    problems.append(f"the currency {code!r} is unknown")
    return None


def _date(row: Row, field: str, problems: list[str]) -> date | None:
    try:
        return date.fromisoformat(row[field])
    except ValueError:
        problems.append(f"{field} is {row[field]!r}, which is no date")
        return None
