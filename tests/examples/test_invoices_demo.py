"""The demo command from end to end, with a worker and beat in this process."""

from __future__ import annotations

import io
import threading
import time

import pytest
from django.core import mail
from django.core.management import CommandError, call_command

from flow_app import beat, get_engine
from project import systems
from project.celery import app
from project.invoices import gateway, report
from project.invoices.models import LedgerEntry
from project.systems.embedded import EmbeddedSystem
from project.systems.errors import SystemFailureError
from project.systems.separate import SeparateSystem

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def carried_by_celery(settings, monkeypatch):
    settings.FLOW_APP = {"DISPATCHER": "flow_app.dispatch.CeleryDispatcher"}
    monkeypatch.setitem(app.conf, "beat_schedule", beat.schedule(every=0.25))


def demo(**options: object) -> str:
    out = io.StringIO()
    call_command("invoices_demo", stdout=out, **{"limit": 40, **options})
    return out.getvalue()


def test_the_demo_runs_to_its_end_and_then_again_without_doing_anything_twice():
    text = demo()
    table = [line.split() for line in text.splitlines()]
    assert ["completed", "paid", "33"] in table
    assert ["failed", "payment", "failed", "1"] in table
    assert ["charges", "in", "the", "ledger", "33"] in table
    assert ["mails", str(len(mail.outbox))] in table
    assert text.endswith("Every run ended as it should, and every paid invoice was charged once.\n")
    assert get_engine().run_summary()["non_terminal"] == 0

    ledger, sent = list(LedgerEntry.objects.order_by("pk").values()), len(mail.outbox)
    again = demo(quiet=True)
    assert [line for line in again.splitlines() if "seconds" not in line] == [
        line for line in text.splitlines() if "seconds" not in line and "/" not in line
    ]
    assert list(LedgerEntry.objects.order_by("pk").values()) == ledger
    assert len(mail.outbox) == sent


def test_its_progress_does_not_flood_a_log():
    shown = [line for line in demo(limit=20).splitlines() if "[" in line]
    assert 2 <= len(shown) <= 10
    assert shown[-1].endswith("] 20/20")


def test_a_gateway_that_charges_twice_is_found_out(monkeypatch):
    honest = gateway.charge

    def twice(key, **request):
        honest(f"{key}/again", **{**request, "attempt": 0})
        return honest(key, **request)

    monkeypatch.setattr(gateway, "mood", lambda reference, attempt: gateway.Mood.FINE)
    monkeypatch.setattr(gateway, "charge", twice)
    with pytest.raises(CommandError, match="2026-0001 was charged 2 times"):
        demo(limit=2, quiet=True)


def test_an_unexpected_ending_is_an_error(monkeypatch):
    monkeypatch.setattr(gateway, "mood", lambda reference, attempt: gateway.Mood.FINE)
    monkeypatch.setattr(report, "outcome_of", lambda snapshot: "lost")
    with pytest.raises(CommandError, match="2026-0001 ended as completed, lost; expected paid"):
        demo(limit=1, quiet=True)


def test_no_thread_of_the_system_outlives_it_and_one_that_dies_is_noticed():
    with systems.start() as system:
        assert isinstance(system, EmbeddedSystem)
        system.check()
    with pytest.raises(SystemFailureError, match="has ended by itself"):
        system.check()
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("embedded")]


def test_a_process_that_dies_is_noticed_and_the_others_are_ended():
    with SeparateSystem([["sleep", "60"], ["false"]]) as system:
        give_up = time.monotonic() + 30
        while system.alive == 2 and time.monotonic() < give_up:
            time.sleep(0.01)
        with pytest.raises(SystemFailureError, match="ended by itself with status 1: false"):
            system.check()
    assert system.alive == 0


def test_a_real_broker_means_processes(monkeypatch):
    monkeypatch.setitem(app.conf, "broker_url", "redis://127.0.0.1:1/0")
    assert isinstance(systems.start(), SeparateSystem)
