"""Where runs are kept, and what routers make of it: wrong settings are named, with a line that is right."""

from __future__ import annotations

from typing import Any

import pytest
from django.conf import settings
from django.core.checks import run_checks
from django.db import connection, connections
from django.test import override_settings


class Router:
    """Keeps flow_app in one database, for migrations and for queries."""

    def __init__(self, alias: str) -> None:
        self.alias = alias

    def db_for_read(self, model: Any, **hints: Any) -> str | None:
        return self.alias if model._meta.app_label == "flow_app" else None

    db_for_write = db_for_read

    def allow_migrate(self, db: str, app_label: str, **hints: Any) -> bool | None:
        return db == self.alias if app_label == "flow_app" else None


def messages(**settings: Any) -> list[tuple[str, str]]:
    with override_settings(**settings):
        return [(str(message.id), str(message.hint)) for message in run_checks(tags=["flow_app"])]


@pytest.fixture
def two_databases(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(settings.DATABASES, "flows", settings.DATABASES["default"])
    monkeypatch.setitem(connections.settings, "flows", settings.DATABASES["default"])


def test_this_project_needs_no_word() -> None:
    assert messages() == []
    assert messages(DATABASE_ROUTERS=[Router("default")]) == []


@pytest.mark.usefixtures("two_databases")
def test_a_second_database_is_right_when_setting_and_router_agree() -> None:
    assert messages(FLOW_APP={"DATABASE": "flows"}, DATABASE_ROUTERS=[Router("flows")]) == []


@pytest.mark.usefixtures("two_databases")
def test_a_router_that_puts_the_tables_elsewhere_is_named_and_the_hint_helps() -> None:
    found = dict(messages(DATABASE_ROUTERS=[Router("flows")]))
    assert set(found) == {"flow_app.W003", "flow_app.W004"}
    assert "DATABASE_ROUTERS = ['Router']" in found["flow_app.W003"]
    assert found["flow_app.W004"].startswith("FLOW_APP = {'DATABASE': 'flows'}")
    assert messages(FLOW_APP={"DATABASE": "flows"}, DATABASE_ROUTERS=[Router("flows")]) == []


@pytest.mark.usefixtures("two_databases")
def test_without_a_router_the_admin_looks_in_the_default_database() -> None:
    ((check_id, hint),) = messages(FLOW_APP={"DATABASE": "flows"})
    assert check_id == "flow_app.W004"
    assert "DATABASE_ROUTERS" in hint


def test_a_connection_without_autocommit_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(settings.DATABASES, "default", {**settings.DATABASES["default"], "AUTOCOMMIT": False})
    assert messages() == [("flow_app.E005", '"AUTOCOMMIT": True,')]


def test_a_database_of_another_kind_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(type(connections["default"]), "vendor", "oracle")
    ((check_id, hint),) = messages()
    assert check_id == "flow_app.E006"
    assert "'DATABASE'" in hint


def test_a_bad_setting_is_named_once_and_not_looked_into() -> None:
    assert [check_id for check_id, _ in messages(FLOW_APP={"DATABASE": "nowhere"})] == ["flow_app.E004"]
    assert [check_id for check_id, _ in messages(FLOW_APP={"LAESE": 1})] == ["flow_app.E001"]


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("feature", "check_id"),
    [("supports_transactions", "flow_app.E007"), ("has_select_for_update_skip_locked", "flow_app.W005")],
)
def test_what_the_server_cannot_do_is_said_when_it_is_asked(
    monkeypatch: pytest.MonkeyPatch, feature: str, check_id: str
) -> None:
    def ask() -> list[str]:
        found = run_checks(tags=["database"], databases=["default"])
        return [str(message.id) for message in found if str(message.id).startswith("flow_app.")]

    assert ask() == []
    monkeypatch.setattr(connection.features, "has_select_for_update", True)
    monkeypatch.setattr(connection.features, "has_select_for_update_skip_locked", True)
    monkeypatch.setattr(connection.features, feature, False)
    assert ask() == [check_id]
    assert run_checks(tags=["flow_app"]) == []
