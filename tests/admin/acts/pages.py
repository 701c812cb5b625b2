"""Addresses of the admin, and what its pages say."""

from __future__ import annotations

import html
import re
from typing import Any

from django.test import Client
from django.urls import reverse

from flow_app.models import Hook, Run


def act(target: Run | Hook, name: str, *, site: str = "admin") -> str:
    return reverse(f"admin:flow_app_{target._meta.model_name}_act", args=[target.pk, name], current_app=site)


def run_page(run: Run) -> str:
    return reverse("admin:flow_app_run_change", args=[run.pk])


def runs() -> str:
    return reverse("admin:flow_app_run_changelist")


def inbox() -> str:
    return reverse("admin:flow_app_hook_changelist")


def start() -> str:
    return reverse("admin:flow_app_run_start")


def said(response: Any) -> list[str]:
    """What the next page tells the user, as he reads it."""
    text = response.content.decode()
    found = re.search(r'<ul class="messagelist">(.*?)</ul>', text, re.DOTALL)
    items = re.findall(r"<li[^>]*>(.*?)</li>", found.group(1), re.DOTALL) if found else []
    return [html.unescape(re.sub(r"<[^>]+>", "", item)) for item in items]


def do(client: Client, target: Run | Hook, name: str, **data: Any) -> list[str]:
    """Do an act and read what is said about it."""
    response = client.post(act(target, name), data, follow=True)
    assert response.status_code == 200
    return said(response)
