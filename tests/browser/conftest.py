"""A person at a browser: Chromium, the site, a worker and beat, all in this process or started by it.

Where Chromium is missing the tests are skipped; where the environment says ``CI`` that is a failure.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
from collections.abc import Iterator
from typing import Any

import pytest
from django.db import connections

from flow_app import beat
from project import systems
from project.celery import app
from project.invoices import visitor
from project.invoices.importing import import_vendors_and_orders
from tests.browser.person import Person

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


@pytest.fixture(scope="session")
def chromium() -> str:
    """Where the browser is."""
    if importlib.util.find_spec("playwright") is None:
        pytest.skip("Playwright is not installed; `make browser` brings it and runs these tests.")
    if CHROMIUM is None:
        missing = "Chromium is not installed; on Debian: apt-get install chromium."
        pytest.fail(missing) if os.environ.get("CI") else pytest.skip(missing)
    return CHROMIUM


@pytest.fixture
def site(chromium: str, live_server: Any, settings: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The address of the site, with what ``make site`` leaves to its visitor; workers and beat are at work."""
    settings.FLOW_APP = {"DISPATCHER": "flow_app.dispatch.CeleryDispatcher"}
    monkeypatch.setitem(app.conf, "beat_schedule", beat.schedule(every=0.25))
    import_vendors_and_orders()
    with systems.start():
        visitor.leave_runs()
        yield live_server.url


@pytest.fixture
def person(chromium: str, site: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Person]:
    """Somebody who has the visitor's password, and has not logged in."""
    from playwright.sync_api import sync_playwright

    # Playwright keeps an event loop in this thread, beside which Django would refuse its database.
    monkeypatch.setenv("DJANGO_ALLOW_ASYNC_UNSAFE", "1")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        somebody = Person(browser, site, password=visitor.let_in())
        yield somebody
        browser.close()
        connections.close_all()  # beside that loop Django opens others than those it closes after a test
    assert somebody.complaints == []
