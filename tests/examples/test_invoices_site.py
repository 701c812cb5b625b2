"""``make site``: the command in a process of its own, visited and ended."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from http.cookiejar import CookieJar
from pathlib import Path
from urllib.parse import urlencode
from urllib.request import HTTPCookieProcessor, OpenerDirector, build_opener

import pytest
from django.conf import settings
from django.core.management import CommandError, call_command

pytestmark = pytest.mark.slow


@pytest.fixture
def port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return int(free.getsockname()[1])


@pytest.fixture
def site(port: int, tmp_path: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """The running command, and all that it has said when the site is there."""
    environment = {
        **os.environ,
        "DJANGO_SETTINGS_MODULE": "project.settings",
        "DATABASE_URL": f"sqlite:///{tmp_path / 'site.sqlite3'}",
        "BROKER": "memory://",
        "TICK_SECONDS": "0.25",
    }
    manage = [sys.executable, str(settings.BASE_DIR / "manage.py")]
    subprocess.run([*manage, "migrate", "--verbosity", "0"], env=environment, check=True, timeout=120)
    command = [*manage, "invoices_site", "--limit", "5", "--port", str(port)]
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as run:
        try:
            yield run, _said(run)
        finally:
            run.kill()


def _said(run: subprocess.Popen[str]) -> str:
    lines = []
    assert run.stdout is not None
    for line in run.stdout:
        lines.append(line)
        if "Ctrl-C" in line:
            return "".join(lines)
    raise AssertionError("It ended by itself:\n" + "".join(lines))


def _visitor(site: str, password: str) -> OpenerDirector:
    """A browser, logged in."""
    cookies = CookieJar()
    browser = build_opener(HTTPCookieProcessor(cookies))
    with browser.open(site) as page:
        assert page.url == f"{site}/admin/login/?next=/admin/"
    csrf = next(cookie.value for cookie in cookies if cookie.name == "csrftoken")
    form = {"username": "visitor", "password": password, "csrfmiddlewaretoken": csrf or ""}
    browser.open(f"{site}/admin/login/?next=/admin/", urlencode(form).encode()).close()
    return browser


@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGTERM], ids=["interrupted", "terminated"])
def test_the_site_is_there_for_its_visitor_until_it_is_ended(
    site: tuple[subprocess.Popen[str], str], port: int, end: signal.Signals
) -> None:
    run, said = site
    assert "Every run ended as it should" in said
    addresses = re.findall(r"http://\S+", said)
    assert len(addresses) == 5
    assert all(address.startswith(f"http://127.0.0.1:{port}/") for address in addresses)
    browser = _visitor(f"http://127.0.0.1:{port}", re.search(r"visitor, password (\S+)", said)[1])  # type: ignore[index]

    pages = {}
    for address in addresses:
        with browser.open(address) as page:
            pages[address] = page.read().decode()
            policy = page.headers["Content-Security-Policy"]
        assert "default-src 'self'" in policy
        assert "unsafe-inline" not in policy
    runs = next(text for address, text in pages.items() if address.endswith("/run/"))
    assert {"approve-me-1", "approve-me-2", "approve-me-3", "cancel-me", "blocked-run"} <= set(
        re.findall(r">([a-z0-9-]+)</a>", runs)
    )
    assert "KeyError" in runs
    inbox = next(text for address, text in pages.items() if address.endswith("/hook/"))
    assert inbox.count('aria-label="Approve approval') == 4
    for style in re.findall(r'href="(/static/[^"]+\.css)"', runs):
        browser.open(f"http://127.0.0.1:{port}{style}").close()

    run.send_signal(end)
    assert run.wait(60) == 0


def test_a_port_that_is_taken_is_named_before_anything_is_done(port: int) -> None:
    with (
        socket.create_server(("127.0.0.1", port)),
        pytest.raises(CommandError, match=f"127.0.0.1:{port} cannot be had"),
    ):
        call_command("invoices_site", port=port)
