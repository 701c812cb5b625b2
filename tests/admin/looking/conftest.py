from __future__ import annotations

from collections.abc import Iterator

import pytest
from django.contrib.auth import get_user_model
from django.contrib.auth.models import Permission
from django.test import Client

from flow_app.authoring import registry
from tests.admin.looking import stories


@pytest.fixture(autouse=True)
def registered() -> Iterator[None]:
    with registry.workflows.isolated(), registry.steps.isolated():
        stories.register()
        yield


@pytest.fixture
def boss() -> Client:
    """The browser of somebody who may do everything."""
    return _browser(is_superuser=True)


@pytest.fixture
def viewer() -> Client:
    """The browser of somebody who may look at runs, and not into payloads."""
    return _browser("view_run")


def _browser(*rights: str, is_superuser: bool = False) -> Client:
    user = get_user_model().objects.create(username="ada", is_staff=True, is_superuser=is_superuser)
    user.user_permissions.set(Permission.objects.filter(content_type__app_label="flow_app", codename__in=rights))
    client = Client()
    client.force_login(user)
    return client
