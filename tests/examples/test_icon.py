"""The icon of a site is the site's own: the example has one, and flow_app puts none on anybody's pages."""

from __future__ import annotations

from pathlib import Path

from django.contrib.staticfiles import finders
from django.templatetags.static import static

import flow_app

ICON = "invoices/icon.svg"


def test_no_page_of_the_app_names_an_icon():
    pages = list(Path(flow_app.__file__).parent.rglob("*.html"))
    assert pages
    assert not [page for page in pages if "icon" in page.read_text(encoding="utf-8")]


def test_browsers_find_the_example_sites_icon(client):
    response = client.get("/favicon.ico")
    assert (response.status_code, response["Location"]) == (302, static(ICON))
    assert finders.find(ICON)
