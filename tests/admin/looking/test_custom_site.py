"""The pages of runs under an AdminSite of the project's own: every link stays on it."""

from __future__ import annotations

import re

import pytest
from django.urls import reverse

from tests.admin.looking import stories

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.urls("tests.admin.acts.site")]


@pytest.mark.parametrize("name", ["changelist", "overview", "change", "live"])
def test_links_stay_on_the_site(boss, name):
    parent, child = stories.run_of("order", run_id="parent"), stories.run_of("nap", run_id="child")
    stories.linked(parent, child)
    args = [parent.pk] if name in ("change", "live") else []
    home = reverse("admin:index", current_app="office")
    address = reverse(f"admin:flow_app_run_{name}", args=args, current_app="office")
    assert address.startswith(home)
    response = boss.get(address)
    assert response.status_code == 200
    links = re.findall(r'(?:href|action|data-flow-live)="(/[^"]*)"', response.content.decode())
    ours = [link for link in links if link != "/" and not link.startswith("/static/")]  # "/": view site
    assert ours or name == "live"
    assert [link for link in ours if not link.startswith(home)] == []
