"""Does an invoice belong to the purchase order it names?"""

from __future__ import annotations

from typing import Any


def mismatch(wanted: dict[str, Any], vendor: dict[str, Any] | None, order: dict[str, Any] | None) -> str | None:
    """What does not fit, None when all does."""
    if vendor is None:
        return f"Vendor {wanted['vendor']} is unknown."
    if order is None:
        return f"Order {wanted['order']} is unknown."
    if order["vendor__code"] != vendor["code"]:
        return f"Order {order['number']} is with another vendor."
    if order["currency"] != wanted["currency"]:
        return f"Order {order['number']} is in {order['currency']}."
    return None
