from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.contrib.auth.models import Permission
from django.core.cache import cache
from rest_framework.test import APIClient

from flow_app import get_engine
from flow_app.authoring import registry
from flow_app.engine import FlowEngine
from flow_app.testing import FakeClock
from tests.api.workflows import define

ALL = ("view_run", "view_hook", "change_run", "start_run", "resume_hook", "cancel_run", "terminate_run", "operate_run",
       "view_payload")  # fmt: skip


@pytest.fixture(autouse=True)
def _registered() -> Iterator[None]:
    """What tests register is forgotten after them; nobody has called before."""
    cache.clear()
    with registry.workflows.isolated(), registry.steps.isolated():
        define()
        yield


@pytest.fixture
def engine() -> FlowEngine:
    return get_engine()


@pytest.fixture
def clock(engine: FlowEngine, monkeypatch: pytest.MonkeyPatch) -> FakeClock:
    """Time that stands still."""
    clock = FakeClock()
    monkeypatch.setattr(engine.store, "clock", clock)
    return clock


@pytest.fixture
def user_with() -> Callable[..., Any]:
    """A user with permissions of this app, by name."""

    def make(*codenames: str, name: str = "ada") -> Any:
        user = get_user_model().objects.create_user(name)
        found = Permission.objects.filter(content_type__app_label="flow_app", codename__in=codenames)
        assert len(found) == len(codenames)
        user.user_permissions.set(found)
        return get_user_model().objects.get(pk=user.pk)

    return make


@pytest.fixture
def client_with(user_with: Callable[..., Any]) -> Callable[..., APIClient]:
    def make(*codenames: str, name: str = "ada") -> APIClient:
        client = APIClient()
        client.force_authenticate(user_with(*codenames, name=name))
        return client

    return make


@pytest.fixture
def api(client_with: Callable[..., APIClient]) -> APIClient:
    """A client that may do everything."""
    return client_with(*ALL)


@pytest.fixture
def anonymous() -> APIClient:
    return APIClient()
