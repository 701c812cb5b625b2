"""What a person does at the site, in the words of the tests."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from django.conf import settings

from project.invoices.visitor import NAME

if TYPE_CHECKING:
    from playwright.sync_api import Browser, ConsoleMessage, Locator, Page, Response

SCREENSHOTS = Path(settings.BASE_DIR) / ".screenshots"
PATIENCE = 30_000  # milliseconds, until something that must come has come
MOST_TABS = 150


class Person:
    """``complaints``: what the browser held against the pages or did not find, and what went wrong in their scripts."""

    def __init__(self, browser: Browser, site: str, *, password: str) -> None:
        self._site, self._password = site, password
        self._context = browser.new_context(
            viewport={"width": 1360, "height": 820}, device_scale_factor=2, color_scheme="light", locale="en-US"
        )
        self._context.set_default_timeout(PATIENCE)
        self.complaints: list[str] = []
        self._context.on("console", self._hear)
        self._context.on("response", self._notice)
        self._context.on("weberror", lambda error: self.complaints.append(str(error.error)))
        self.page = self._context.new_page()

    def _hear(self, message: ConsoleMessage) -> None:
        if "Content Security Policy" in message.text:
            self.complaints.append(message.text)

    def _notice(self, response: Response) -> None:
        if response.status >= 400 and not response.request.is_navigation_request():
            self.complaints.append(f"{response.status} {response.url}")

    def log_in(self) -> None:
        self.go("/")
        self.fills_log_in()
        self.sees(self.page.get_by_role("link", name="Log out").or_(self.page.get_by_role("button", name="Log out")))

    def fills_log_in(self) -> None:
        self.page.get_by_label("Username").fill(NAME)
        self.page.get_by_label("Password").fill(self._password)
        self.page.get_by_role("button", name="Log in").click()

    def log_in_by_keyboard(self) -> None:
        from playwright.sync_api import expect

        self.go("/")
        # The browser gives the focus when it comes to it, which may be after the page has loaded.
        expect(self.page.get_by_label("Username")).to_be_focused(timeout=PATIENCE)
        self.types(NAME)
        self.page.keyboard.press("Tab")
        self.types(self._password)
        self.page.keyboard.press("Enter")

    def go(self, path: str) -> None:
        self.page.goto(self._site + path)

    def other_tab(self, path: str) -> Page:
        tab = self._context.new_page()
        tab.goto(self._site + path)
        return tab

    def in_the_dark(self) -> None:
        self.page.emulate_media(color_scheme="dark")

    def clicks(self, role: Any, name: str) -> None:
        self.page.get_by_role(role, name=name, exact=True).click()

    def opens_run(self, run_id: str) -> None:
        """By the list and its search."""
        self.go("/")
        self.clicks("link", "Runs")
        self.page.get_by_role("textbox", name="Search").fill(run_id)
        self.clicks("button", "Search")
        self.opens_listed(run_id)

    def opens_listed(self, run_id: str) -> None:
        self.page.locator("#result_list").get_by_role("link", name=run_id, exact=True).click()

    def types(self, text: str) -> None:
        self.page.keyboard.type(text)

    def tabs_to(self, name: str) -> None:
        """Press the tab key until what is called so has the focus."""
        for _ in range(MOST_TABS):
            self.page.keyboard.press("Tab")
            if self.page.evaluate(_FOCUSED) == name:
                return
        raise AssertionError(f"{MOST_TABS} tabs do not lead to {name!r}")

    def sees(self, what: Locator | str) -> None:
        """Now or soon, without doing anything for it."""
        from playwright.sync_api import expect

        locator = self.page.get_by_text(what).first if isinstance(what, str) else what
        expect(locator).to_be_visible(timeout=PATIENCE)

    def reads_headline(self, start: str) -> None:
        self.sees(self.page.locator(".flow-headline", has_text=start))

    def keeps_picture(self, name: str) -> None:
        SCREENSHOTS.mkdir(exist_ok=True)
        self.page.evaluate("scrollTo(0, 0)")
        self.page.screenshot(path=SCREENSHOTS / f"{name}.png")


def until(condition: Callable[[], bool]) -> None:
    give_up = time.monotonic() + PATIENCE / 1000
    while not condition():
        assert time.monotonic() < give_up, "what must come has not come"
        time.sleep(0.05)


_FOCUSED = """() => {
  const element = document.activeElement;
  return element && (element.getAttribute("aria-label") || element.textContent || "").trim();
}"""
