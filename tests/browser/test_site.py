"""The site as a person uses it, in a real browser, with workers at work behind it."""

from __future__ import annotations

import pytest

from flow_app import get_engine
from project.invoices.data import read_file
from project.invoices.importing import start_runs
from project.invoices.models import LedgerEntry, Reservation
from tests.browser.person import Person, until

#: Of the demo's invoices: two that are paid, one that its order does not cover, one that the gateway never charges.
ENDED = {"2026-0001", "2026-0002", "2026-0019", "2026-0040"}

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.slow]


def test_a_run_is_started_waits_is_approved_and_completes_before_ones_eyes(person: Person) -> None:
    person.log_in()
    person.keeps_picture("index")
    person.go("/send-an-invoice/")
    person.page.get_by_label("Run id").fill("invoice-2026-9014")
    person.keeps_picture("start")
    person.clicks("button", "Start")

    person.clicks("button", "Toggle navigation")
    person.reads_headline("Waits for approval “approval”")
    person.sees(person.page.locator(".flow-timeline"))
    person.page.evaluate("window.sameDocument = true")
    person.keeps_picture("waiting")

    inbox = person.other_tab("/admin/flow_app/hook/")
    inbox.get_by_role("button", name="Approve approval invoice-2026-9014").click()
    inbox.get_by_text("Approved.").wait_for()

    person.reads_headline("Completed")
    assert person.page.evaluate("window.sameDocument"), "the page came up to date by itself"
    person.keeps_picture("completed")
    assert LedgerEntry.objects.get(reference="2026-9014").requests == 1
    [answer] = [event for event in get_engine().history("invoice-2026-9014") if event.type == "hook_received"]
    assert answer.meta["actor"] == "visitor"


def test_a_run_that_is_cancelled_cleans_up(person: Person) -> None:
    person.log_in()
    person.opens_run("cancel-me")
    person.reads_headline("Waits for approval")
    assert Reservation.objects.filter(invoice="2026-9011").exists()
    person.clicks("link", "Request cancellation")
    person.page.get_by_label("Reason").fill("ordered twice")
    person.keeps_picture("cancel")
    person.clicks("button", "Request cancellation")

    person.reads_headline("Cancelled")
    person.sees(person.page.locator(".flow-timeline text", has_text="withdraw-release"))
    person.sees("ordered twice")
    person.keeps_picture("cancelled")
    assert not Reservation.objects.filter(invoice="2026-9011").exists()


def test_a_blocked_run_is_found_and_says_why(person: Person) -> None:
    some_of_every_kind()
    person.log_in()
    person.in_the_dark()
    person.clicks("link", "Runs")
    person.clicks("button", "Toggle navigation")
    person.sees(person.page.locator(".flow-badge", has_text="blocked"))
    person.keeps_picture("runs")
    person.clicks("link", "Overview")
    person.keeps_picture("overview")
    person.page.locator(".flow-tiles a", has_text="blocked").click()
    person.opens_listed("blocked-run")

    person.reads_headline("Blocked since")
    person.sees(person.page.get_by_role("heading", name="What blocks it"))
    person.sees(person.page.locator(".flow-error", has_text="KeyError: 'approve_within'"))
    person.keeps_picture("blocked")


def some_of_every_kind() -> None:
    """Runs that are paid, refused, failed and cancelled, beside those that wait, and the one that is blocked."""
    ended = set(start_runs(row for row in read_file("invoices.csv") if row["number"] in ENDED)) | {"cancel-me"}
    engine = get_engine()
    engine.request_cancellation("cancel-me", "ordered twice")
    until(lambda: all(engine.row(run_id).status.is_terminal for run_id in ended))


def test_a_keyboard_is_enough(person: Person) -> None:
    """From the log-in to an approval, and to the run that it completes."""
    person.log_in_by_keyboard()
    person.sees("Site administration")
    person.tabs_to("Hooks")
    person.page.keyboard.press("Enter")
    person.sees("Hook inbox")
    person.tabs_to("Approve approval approve-me-2")
    person.keeps_picture("inbox")
    person.page.keyboard.press("Enter")
    person.sees("Approved.")
    person.tabs_to("Runs")
    person.page.keyboard.press("Enter")
    person.sees("How the run's id begins")
    person.tabs_to("approve-me-2")
    person.page.keyboard.press("Enter")
    person.reads_headline("Completed")
    person.tabs_to("The timeline in words")
    person.page.keyboard.press("Enter")
    person.sees(person.page.locator("#flow-told li li", has_text="by visitor"))


def test_a_finger_is_enough_for_what_the_picture_tells(person: Person) -> None:
    person.log_in()
    person.opens_run("cancel-me")
    lane = person.page.locator(".flow-lane", has_text="⚓ approval")
    told = person.page.locator(f"{lane.get_attribute('href')} li", has_text="since")
    assert not told.is_visible()
    lane.locator(".flow-span").click()
    person.sees(told)
