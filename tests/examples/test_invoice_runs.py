"""Single runs of the invoice workflow: the ways through it, and what each leaves behind."""

from __future__ import annotations

import time
from datetime import timedelta
from decimal import Decimal

import pytest
from django.core import mail

from flow_app import get_engine
from flow_app.dispatch import FlowScheduler
from flow_app.errors import HookTokenNotFoundError
from project.invoices import gateway, importing, mails, workflows
from project.invoices.gateway import Mood
from project.invoices.models import LedgerEntry, PurchaseOrder, Reservation

pytestmark = pytest.mark.django_db

ROW = {
    "number": "T-1",
    "vendor": "V-101",
    "order": "PO-T1",
    "amount": "950.00",
    "currency": "EUR",
    "issued": "2026-03-01",
    "due": "2026-03-31",
    "description": "Electricity",
}
LARGE = {**ROW, "amount": "25000.00"}


@pytest.fixture(autouse=True)
def fine_gateway(monkeypatch):
    monkeypatch.setattr(gateway, "mood", lambda reference, attempt: Mood.FINE)


@pytest.fixture(autouse=True)
def order():
    importing.import_vendors_and_orders()
    template = PurchaseOrder.objects.select_related("vendor").filter(vendor__code="V-101")[0]
    return PurchaseOrder.objects.create(number="PO-T1", vendor=template.vendor, amount=Decimal(30_000), currency="EUR")


def start(row: dict[str, str] = ROW):
    run_id = importing.start_run(row)
    return run_id, get_engine().snapshot(run_id)


def charged() -> list[tuple[str, Decimal]]:
    return list(LedgerEntry.objects.filter(voided=False).values_list("reference", "amount"))


def test_a_small_invoice_is_paid_at_once(order):
    _, snapshot = start()
    assert snapshot.status == "completed"
    assert snapshot.output["outcome"] == "paid"
    assert [progress.progress_id for progress in snapshot.progress] == list(workflows.MILESTONES)
    assert charged() == [("T-1", Decimal(950))]
    assert order.free == Decimal(29_050)
    assert [message.to for message in mail.outbox] == [["billing@v-101.example.com"]]


def test_starting_it_again_is_the_same_run():
    run_id, snapshot = start()
    assert start() == (run_id, snapshot)
    assert len(charged()) == len(mail.outbox) == 1


def test_money_travels_as_decimals_and_dates_as_dates():
    _, snapshot = start()
    facts = snapshot.step_output("validate")
    assert isinstance(facts["amount"], Decimal)
    assert facts["due"] - facts["issued"] == timedelta(days=30)
    assert snapshot.steps["charge"].input == facts


def test_a_bad_row_is_rejected_before_anything_is_touched():
    _, snapshot = start({**ROW, "amount": "12O.00"})
    assert (snapshot.status, snapshot.output["outcome"]) == ("completed", "rejected: invalid")
    assert set(snapshot.steps) == {"validate", "mail"}
    assert mail.outbox[0].to == [mails.PAYABLES]


def test_a_large_invoice_waits_for_its_approval_and_is_paid(order):
    run_id, snapshot = start(LARGE)
    assert snapshot.status == "suspended"
    assert order.free == Decimal(5_000), "the money is held while somebody thinks"
    assert charged() == []
    assert snapshot.hooks["approval"].metadata["callback"] == {"method": "POST", "path": "/approvals/{token}"}
    assert snapshot.hooks["approval"].expires_at == snapshot.step_output("deadline")

    token = mails.approval_tokens(mail.outbox)["T-1"]
    assert get_engine().resume_hook_by_token(token, {"approved": True, "by": "me"}) == (run_id, "approval")
    assert get_engine().snapshot(run_id).output["outcome"] == "paid"
    assert charged() == [("T-1", Decimal(25_000))]
    assert not any(token in str(envelope.to_wire()) for envelope in get_engine().history(run_id))
    with pytest.raises(HookTokenNotFoundError):
        get_engine().resume_hook_by_token(token, {"approved": True, "by": "me"})


def test_a_refused_approval_gives_the_order_back(order):
    run_id, _ = start(LARGE)
    get_engine().resume_hook(run_id, "approval", {"approved": False, "by": "the boss"})
    snapshot = get_engine().snapshot(run_id)
    assert snapshot.output == {"outcome": "rejected: not approved", "detail": "the boss said no.", "receipt": None}
    assert order.free == Decimal(30_000)
    assert charged() == []


def test_without_an_answer_in_time_the_invoice_is_rejected(order, monkeypatch):
    monkeypatch.setattr(importing, "time_to_answer", lambda number: timedelta(milliseconds=50))
    run_id, _ = start(LARGE)
    time.sleep(0.06)
    FlowScheduler(get_engine()).tick()
    assert get_engine().snapshot(run_id).output["outcome"] == "rejected: no answer in time"
    assert order.free == Decimal(30_000)


def test_a_cancelled_run_cleans_up_after_itself(order):
    run_id, _ = start(LARGE)
    get_engine().request_cancellation(run_id, reason="withdrawn")
    snapshot = get_engine().snapshot(run_id)
    assert snapshot.status == "cancelled"
    assert snapshot.terminal_outcome.reason == "withdrawn"
    assert snapshot.hooks["approval"].status == "cancelled"
    assert snapshot.step_output("withdraw-release") is True
    assert order.free == Decimal(30_000)
    assert charged() == []


@pytest.fixture
def no_delay(monkeypatch):
    retry = workflows.RetryPolicy.fixed(workflows.CHARGE_ATTEMPTS).continue_workflow_on_failure()
    monkeypatch.setattr(workflows, "CHARGE_RETRY", retry)


@pytest.mark.usefixtures("no_delay")
@pytest.mark.parametrize(("mood", "entries"), [(Mood.DOWN, 0), (Mood.LOSES_ANSWER, 1)])
def test_a_payment_that_never_succeeds_is_compensated(order, monkeypatch, mood, entries):
    monkeypatch.setattr(gateway, "mood", lambda reference, attempt: mood)
    _, snapshot = start()
    assert (snapshot.status, snapshot.terminal_outcome.type) == ("failed", "failed")
    assert snapshot.steps["charge"].attempt == workflows.CHARGE_ATTEMPTS
    assert snapshot.step_output("void") is (entries > 0)
    assert snapshot.step_output("release") is True
    assert LedgerEntry.objects.filter(voided=True).count() == entries
    assert charged() == []
    assert not Reservation.objects.exists()
    assert mail.outbox[0].subject == "Invoice T-1: payment failed"


def test_a_lost_answer_is_asked_for_again_after_the_delay(monkeypatch):
    monkeypatch.setattr(gateway, "mood", lambda reference, attempt: [Mood.LOSES_ANSWER, Mood.FINE][attempt - 1])
    run_id, snapshot = start()
    assert snapshot.status == "suspended"
    scheduler = FlowScheduler(get_engine())
    assert timedelta() < scheduler.next_wakeup_delay() <= timedelta(milliseconds=200)
    time.sleep(0.21)
    assert scheduler.tick().run_ids == [run_id]
    assert get_engine().snapshot(run_id).output["outcome"] == "paid"
    entry = LedgerEntry.objects.get()
    assert (entry.requests, entry.amount) == (2, Decimal(950))
    assert entry.idempotency_key == f"{run_id}/charge"
