from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.conf import settings
from django.core.checks import run_checks
from django.test import override_settings

from flow_app import conf, get_engine
from flow_app.errors import ConfigurationError


def _messages(**settings: Any) -> list[tuple[str, str]]:
    with override_settings(**settings):
        return [(str(message.id), str(message.hint)) for message in run_checks(tags=["flow_app"])]


def test_every_key_is_optional_and_read_when_it_is_needed() -> None:
    assert conf.options().lease == timedelta(seconds=30)
    with override_settings(FLOW_APP={"LEASE": 5, "DRIVE_SLICE": {"steps": 3}, "MAX_DEPTH": 8}):
        options = conf.options()
    assert options.lease == timedelta(seconds=5)
    assert (options.drive_slice.steps, options.drive_slice.seconds) == (3, 60.0)
    assert options.limits.max_depth == 8


@pytest.mark.parametrize(
    "given",
    [
        {"LAESE": 1},
        {"LEASE": 0},
        {"LEASE": "30s"},
        {"LEASE": True},
        {"MAX_DELIVERIES": 0},
        {"MAX_PAYLOAD": 1.5},
        {"DRIVE_SLICE": {"minutes": 1}},
        {"DRIVE_SLICE": 5},
        {"BUILD": {"curent": "v1"}},
        {"BUILD": "v1"},
        ["LEASE"],
    ],
)
def test_a_bad_setting_is_refused_by_name(given: Any) -> None:
    with override_settings(FLOW_APP=given), pytest.raises(ConfigurationError, match="FLOW_APP"):
        conf.options()


@pytest.mark.parametrize(
    ("given", "check_id", "hint"),
    [
        ({"LAESE": 1}, "flow_app.E001", "Did you mean 'LEASE'?"),
        ({"LEASE": -1}, "flow_app.E002", "every key is optional"),
        ({"BUILD": {"current": "no spaces"}}, "flow_app.E002", "every key is optional"),
        ({"DISPATCHER": "shop.missing.Dispatcher"}, "flow_app.E003", "'DISPATCHER'"),
        ({"OBSERVERS": ["shop.missing.Observer"]}, "flow_app.E003", "'OBSERVERS'"),
        ({"DATABASE": "elsewhere"}, "flow_app.E004", "'DATABASE'"),
    ],
)
def test_a_check_names_the_bad_setting_and_says_what_to_write(given: Any, check_id: str, hint: str) -> None:
    (message,) = _messages(FLOW_APP=given)
    assert message[0] == check_id
    assert hint in message[1]


@pytest.mark.parametrize(
    ("options", "warned"),
    [
        ({}, True),
        ({"transaction_mode": "IMMEDIATE"}, True),
        ({"timeout": 30}, True),
        ({"transaction_mode": "IMMEDIATE", "timeout": 30}, False),
    ],
)
def test_sqlite_without_immediate_transactions_and_patience_is_warned_about(
    options: Any, warned: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:", "OPTIONS": options}
    monkeypatch.setitem(settings.DATABASES, "default", database)
    assert ([check_id for check_id, _ in _messages(FLOW_APP={})] == ["flow_app.W001"]) is warned


def test_the_engine_follows_the_settings() -> None:
    before = get_engine()
    assert get_engine() is before
    with override_settings(FLOW_APP={"BUILD": {"current": "v2", "compatible": ["v1"]}}):
        engine = get_engine()
        assert engine.supports_runtime_build("v1")
        assert not engine.supports_runtime_build(None)
    assert get_engine() is not engine
    assert get_engine().supports_runtime_build(None)
