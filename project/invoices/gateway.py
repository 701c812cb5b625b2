"""A fake payment gateway that fails now and then, the same way each time: by hash of reference and attempt.

Its ledger shows what a real one would: an idempotency key moves money once, however often it is sent.
"""

from __future__ import annotations

import hashlib
from decimal import Decimal
from enum import Enum

from django.db.models import F

from project.invoices.models import LedgerEntry


class Mood(Enum):
    """How the gateway takes a request."""

    FINE = "charges and says so"
    DOWN = "fails before charging"
    LOSES_ANSWER = "charges, and the answer is lost"


class GatewayError(Exception):
    """The caller cannot know whether money moved."""


def dice(text: str) -> int:
    """A number from 0 to 99 that depends on nothing but the text."""
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4]) % 100


def mood(reference: str, attempt: int) -> Mood:
    """One reference in fifty never gets through, one in fifty never gets an answer; the rest meets a flaky day."""
    always = dice(f"gateway:{reference}")
    if always < 4:
        return Mood.DOWN if always < 2 else Mood.LOSES_ANSWER
    now = dice(f"gateway:{reference}:{attempt}")
    if now < 15:
        return Mood.DOWN
    return Mood.LOSES_ANSWER if now < 27 else Mood.FINE


def charge(key: str, *, reference: str, amount: Decimal, currency: str, attempt: int) -> str:
    """Move money once per idempotency key and return the receipt; ``attempt`` only picks the mood.

    Raises GatewayError, before or after the money moved.
    """
    todays = mood(reference, attempt)
    if todays is Mood.DOWN:
        raise GatewayError("the gateway is down")
    entry, _ = LedgerEntry.objects.get_or_create(
        idempotency_key=key, defaults={"reference": reference, "amount": amount, "currency": currency}
    )
    LedgerEntry.objects.filter(pk=entry.pk).update(requests=F("requests") + 1)
    if entry.voided or (entry.reference, entry.amount, entry.currency) != (reference, amount, currency):
        raise GatewayError(f"key {key} was used for another charge")
    if todays is Mood.LOSES_ANSWER:
        raise GatewayError("the connection was lost before the answer came")
    return f"receipt-{entry.pk}"


def void(reference: str) -> bool:
    """Take back what was charged for a reference; False when nothing was. May be repeated."""
    return LedgerEntry.objects.filter(reference=reference).update(voided=True) > 0
