"""Chromium under a Content-Security-Policy without unsafe-inline: it has nothing to complain of."""

from __future__ import annotations

import shutil
import subprocess

import pytest
from django.conf import settings
from django.test import override_settings
from django.urls import reverse
from pytest_django.live_server_helper import LiveServer

from flow_app import get_engine
from tests.admin.acts import pages, strict
from tests.admin.acts.flows import hook_of, run_of
from tests.admin.acts.people import person

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
STRICT = [*settings.MIDDLEWARE, "tests.admin.acts.strict.superuser", "tests.admin.acts.strict.policy"]

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium"),
]


OPTIONS = ["--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr", "--virtual-time-budget=4000"]


@pytest.fixture
def visit(tmp_path):
    """Opens a page, lets its scripts run, and returns what is then on it and what the console says."""

    def go(url: str) -> tuple[str, list[str]]:
        done = subprocess.run(
            [str(CHROMIUM), *OPTIONS, f"--user-data-dir={tmp_path}", "--dump-dom", f"{server.url}{url}"],
            capture_output=True,
            text=True,
            timeout=120,
            check=True,
        )
        return done.stdout, [line for line in done.stderr.splitlines() if "CONSOLE" in line]

    person("superuser")
    with override_settings(MIDDLEWARE=STRICT):  # before the server starts, which reads it once
        server = LiveServer("localhost")
        try:
            yield go
        finally:
            server.stop()


def test_no_page_needs_what_the_policy_forbids(visit):
    run = run_of("asks", run_id="r1", subject="order:7")
    run_of("tries", run_id="r2")
    decided = run_of("asks", run_id="r3")
    get_engine().resume_hook("r3", "approval", {"approved": True})
    hook = hook_of(run)
    for url in (
        pages.runs(),
        pages.run_page(run),
        pages.run_page(decided),
        reverse("admin:flow_app_run_overview"),
        pages.start(),
        pages.inbox(),
        reverse("admin:flow_app_hook_change", args=[hook.pk]),
        pages.act(run, "cancel"),
        pages.act(hook, "answer"),
    ):
        page, complaints = visit(url)
        assert complaints == [], url
        assert "</html>" in page
        assert "<title>Log in" not in page
        assert "flow_app" in page


def test_the_console_would_tell(visit):
    _page, complaints = visit(strict.BROKEN)
    assert any("Content Security Policy" in line for line in complaints)
