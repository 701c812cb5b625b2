"""The steps of the invoice workflow: everything that touches the world. Each may run more than once."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

from django.db import transaction
from django.utils import timezone

from flow_app import step
from flow_app.types import StepContext
from project.invoices import gateway, mails, money, rows
from project.invoices.models import PurchaseOrder, Reservation, Vendor


@step("invoice.validate")
def validate(row: rows.Row) -> dict[str, Any]:
    """The row's fields in their types, with what is wrong with them."""
    fields, problems = rows.read(row)
    return {**fields, "problems": problems}


@step("invoice.load_vendor")
def load_vendor(code: str) -> Mapping[str, object] | None:
    return Vendor.objects.filter(code=code).values("code", "name", "email").first()


@step("invoice.load_order")
def load_order(number: str) -> Mapping[str, object] | None:
    return PurchaseOrder.objects.filter(number=number).values("number", "vendor__code", "currency").first()


@step("invoice.read_rate")
def read_rate(currency: str) -> Decimal:
    """Today's rate to the euro. Recorded, so that the run goes on with it however long it takes."""
    return money.RATES[currency]


@step("invoice.reserve")
def reserve(facts: dict[str, Any]) -> bool:
    """Set part of the purchase order aside for the invoice; False when the order has too little left."""
    with transaction.atomic():
        order = PurchaseOrder.objects.select_for_update().get(number=facts["order"])
        if order.reservations.filter(invoice=facts["number"]).exists():
            return True
        if order.free < facts["amount"]:
            return False
        order.reservations.create(invoice=facts["number"], amount=facts["amount"])
        return True


@step("invoice.release")
def release(number: str) -> bool:
    """Give the reserved part of the order back; False when there was none."""
    deleted, _ = Reservation.objects.filter(invoice=number).delete()
    return deleted > 0


@step("invoice.approval_deadline")
def approval_deadline(within: timedelta | float) -> datetime:
    """Until when the approver may answer; days, where JSON had to say it.

    A step may read the clock: its output is recorded, a replay reads that.
    """
    return timezone.now() + (within if isinstance(within, timedelta) else timedelta(days=within))


@step("invoice.ask_approval")
def ask_approval(ctx: StepContext, request: dict[str, Any]) -> None:
    """Mail the link with the hook's token, which is derived here and never recorded."""
    mails.ask_approval(request["facts"], token=ctx.hook_token("approval"), until=request["until"])


@step("invoice.charge")
def charge(ctx: StepContext, facts: dict[str, Any]) -> str:
    """Charge the invoice. Every attempt sends the same key, so a lost answer costs nothing twice."""
    return gateway.charge(
        ctx.idempotency_key,
        reference=facts["number"],
        amount=facts["amount"],
        currency=facts["currency"],
        attempt=ctx.attempt,
    )


@step("invoice.void")
def void(number: str) -> bool:
    """Undo a charge whose answer may have been lost; False when nothing was charged."""
    return gateway.void(number)


@step("invoice.send_result")
def send_result(result: dict[str, Any]) -> None:
    mails.send_result(result["number"], result["outcome"], to=result["to"], detail=result["detail"])
