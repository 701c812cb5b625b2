"""The API's own pages as a person uses them, under the site's policy: nothing on them may be stopped by it."""

from __future__ import annotations

import json

import pytest

from flow_app import get_engine
from project.invoices.visitor import TO_APPROVE
from tests.browser.person import Person

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.slow]

API = "/api/flow/"
RUN = TO_APPROVE[0].run_id


def test_a_person_logs_in_starts_approves_and_logs_out(person: Person) -> None:
    person.go(API)
    person.clicks("link", "Log in")
    person.fills_log_in()
    person.sees("workflows")
    person.go(f"{API}runs")
    person.clicks("link", "HTML form")
    form = person.page.locator("#post-object-form")
    form.locator("[name=workflow]").fill("invoice")
    form.locator("[name=run_id]").fill("from-a-page")
    form.get_by_role("button", name="POST").click()
    person.sees("HTTP 201 Created")
    assert get_engine().row("from-a-page").workflow == "invoice"

    person.go(f"{API}runs/{RUN}/hooks/approval")
    person.clicks("link", "Raw data")
    raw = person.page.locator("#post-generic-content-form")
    raw.locator("[name=_content]").fill(json.dumps({"payload": {"approved": True}}))
    raw.get_by_role("button", name="POST").click()
    person.sees("received")
    person.keeps_picture("api-hook")
    assert get_engine().snapshot(RUN).hooks["approval"].status == "received"

    person.clicks("button", "Log out")
    person.go(f"{API}runs")
    person.sees("Authentication credentials were not provided.")


PATHS = (
    "", "workflows", "summary", "runs", "runs?status=suspended", "hooks", f"runs/{RUN}", f"runs/{RUN}/events",
    f"runs/{RUN}/hooks/approval", f"runs/{RUN}/progress", f"runs/{RUN}/children", f"runs/{RUN}/cancel", "runs/none",
)  # fmt: skip


def test_no_page_needs_what_the_policy_forbids(person: Person) -> None:
    person.log_in()
    for path in PATHS:
        person.go(API + path)
        person.sees(person.page.locator(".response-info"))
        assert person.complaints == [], path


def test_lists_are_filtered_by_a_form(person: Person) -> None:
    person.log_in()
    person.go(f"{API}runs")
    person.clicks("button", "Filters")
    form = person.page.locator("#filtersModal")  # which the framework hides from screen readers, open or not
    form.locator("[name=run_id]").fill(RUN)
    form.locator("[type=submit]").click()
    person.sees(person.page.locator(".response-info", has_text=RUN))


def test_the_browser_would_tell(person: Person) -> None:
    person.log_in()
    person.page.evaluate("""() => { document.body.insertAdjacentHTML("beforeend", "<p style='color: red'>x</p>") }""")
    person.page.evaluate("() => fetch('/static/none.css')")
    person.go("/admin/")
    said, person.complaints = person.complaints, []
    assert any("Content Security Policy" in text for text in said)
    assert any(text.startswith("404 ") for text in said)
