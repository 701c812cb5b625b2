"""The fake gateway: flaky in a repeatable way, and exact."""

from __future__ import annotations

from collections import Counter
from decimal import Decimal

import pytest

from project.invoices import gateway
from project.invoices.gateway import GatewayError, Mood
from project.invoices.models import LedgerEntry

pytestmark = pytest.mark.django_db


@pytest.fixture
def moods(monkeypatch):
    """What the gateway does at each attempt, in order."""
    script: list[Mood] = []
    monkeypatch.setattr(gateway, "mood", lambda reference, attempt: script[attempt - 1])
    return script


def charge(attempt: int = 1, key: str = "run/charge", amount: str = "12.50") -> str:
    return gateway.charge(key, reference="2026-0001", amount=Decimal(amount), currency="EUR", attempt=attempt)


def test_a_failure_before_the_charge_leaves_no_entry(moods):
    moods += [Mood.DOWN]
    with pytest.raises(GatewayError, match="down"):
        charge()
    assert not LedgerEntry.objects.exists()


def test_a_lost_answer_is_asked_for_again_and_nothing_is_charged_twice(moods):
    moods += [Mood.LOSES_ANSWER, Mood.DOWN, Mood.FINE]
    with pytest.raises(GatewayError, match="lost"):
        charge(1)
    with pytest.raises(GatewayError, match="down"):
        charge(2)
    assert charge(3) == charge(3)
    entry = LedgerEntry.objects.get()
    assert (entry.amount, entry.currency, entry.requests) == (Decimal("12.50"), "EUR", 3)


def test_a_key_is_good_for_one_charge_only(moods):
    moods += [Mood.FINE]
    charge()
    with pytest.raises(GatewayError, match="another charge"):
        charge(amount="13.00")
    assert LedgerEntry.objects.get().amount == Decimal("12.50")


def test_a_void_may_be_repeated_and_ends_the_key(moods):
    moods += [Mood.FINE]
    assert not gateway.void("2026-0001")
    charge()
    assert gateway.void("2026-0001")
    assert gateway.void("2026-0001")
    with pytest.raises(GatewayError):
        charge()
    assert LedgerEntry.objects.get().voided


def test_moods_are_mixed_and_always_the_same():
    moods = [gateway.mood(f"2026-{number:04}", 1) for number in range(1000)]
    assert moods == [gateway.mood(f"2026-{number:04}", 1) for number in range(1000)]
    assert min(Counter(moods).values()) > 50
    assert set(moods) == set(Mood)
