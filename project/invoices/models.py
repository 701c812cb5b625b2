"""Vendors and what was ordered from them, and the ledger of the fake payment gateway."""

from __future__ import annotations

from decimal import Decimal

from django.db import models


class Vendor(models.Model):
    code = models.CharField(max_length=20, unique=True)
    name = models.CharField(max_length=100)
    email = models.EmailField()

    def __str__(self) -> str:
        return f"{self.code} {self.name}"


class PurchaseOrder(models.Model):
    number = models.CharField(max_length=20, unique=True)
    vendor = models.ForeignKey(Vendor, on_delete=models.PROTECT, related_name="orders")
    amount = models.DecimalField(max_digits=14, decimal_places=2)
    currency = models.CharField(max_length=3)

    def __str__(self) -> str:
        return f"{self.number}: {self.amount} {self.currency}"

    @property
    def free(self) -> Decimal:
        """What no invoice has reserved. Summed here, because SQLite would sum in floating point."""
        return self.amount - sum(self.reservations.values_list("amount", flat=True), Decimal(0))


class Reservation(models.Model):
    """The part of a purchase order that one invoice uses up."""

    order = models.ForeignKey(PurchaseOrder, on_delete=models.PROTECT, related_name="reservations")
    invoice = models.CharField(max_length=40, unique=True)
    amount = models.DecimalField(max_digits=14, decimal_places=2)

    def __str__(self) -> str:
        return f"{self.amount} of {self.order_id} for {self.invoice}"


class LedgerEntry(models.Model):
    """Money that the gateway moved. ``requests`` counts how often it was asked to, with this key."""

    idempotency_key = models.CharField(max_length=200, unique=True)
    reference = models.CharField(max_length=40, db_index=True)
    amount = models.DecimalField(max_digits=14, decimal_places=2)
    currency = models.CharField(max_length=3)
    requests = models.PositiveIntegerField(default=0)
    voided = models.BooleanField(default=False)

    class Meta:
        verbose_name_plural = "ledger entries"

    def __str__(self) -> str:
        return f"{self.reference}: {self.amount} {self.currency}{' (voided)' if self.voided else ''}"
