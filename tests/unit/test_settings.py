from __future__ import annotations

import sys
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from django.conf import settings
from django.core.checks import run_checks
from django.test import override_settings

from flow_app import conf, get_engine
from flow_app.errors import ConfigurationError

WAL = "PRAGMA journal_mode=WAL;"


class Audit:
    """Observes nothing much."""

    def on_event(self, envelope: Any) -> None:
        pass


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
        None,
        {1: 2},
        {"LEASE": float("nan")},
        {"DISPATCH_GRACE": float("inf")},
        {"DATABASE": None},
        {"DATABASE": ["default"]},
        {"DISPATCHER": None},
        {"DISPATCHER": 3},
        {"OBSERVERS": "shop.observers.Audit"},
        {"OBSERVERS": 3},
        {"TRACEBACKS": 1},
        {"TRACEBACKS": "no"},
        {"OBSERVERS": [object()]},
        {"MAX_DEPTH": 257},
        {"DRIVE_SLICE": {"steps": 0}},
        {"DRIVE_SLICE": {"steps": "many"}},
        {"DRIVE_SLICE": {"steps": 1.5}},
        {"DRIVE_SLICE": {"seconds": -1}},
        {"DRIVE_SLICE": {"seconds": float("nan")}},
        {"DRIVE_SLICE": {"seconds": True}},
        {"DRIVE_SLICE": conf.Slice(steps=0)},
        {"BUILD": {"queues": {}}},
        {"BUILD": {"current": "v2", "routes": ["flow-v2"]}},
        {"BUILD": {"current": "v2", "routes": {"v 1": "flow-v1"}}},
        {"BUILD": {"current": "v2", "routes": {None: "flow-v1"}}},
        {"BUILD": {"current": "v2", "routes": {"v1": ""}}},
        {"BUILD": {"current": "v2", "routes": {"v1": 1}}},
        {"BUILD": {"current": ""}},
        {"BUILD": {"current": "no spaces"}},
        {"BUILD": {"current": "v2", "compatible": "v1"}},
        {"BUILD": {"current": "v2", "compatible": [1]}},
        {"BUILD": {"current": "v2", "compatible": None}},
        {"BUILD": {"compatible": ["v1"]}},
        {"BUILD": {"current": "v2", "accept_unpinned": "no"}},
        {"BUILD": {"on_missing_route": "skp"}},
        {"BUILD": {"on_missing_route": None}},
    ],
)
def test_a_bad_setting_is_refused_by_name(given: Any) -> None:
    with override_settings(FLOW_APP=given):
        with pytest.raises(ConfigurationError, match="FLOW_APP"):
            conf.options()
        with pytest.raises(ConfigurationError, match="FLOW_APP"):
            get_engine()
        assert [message.id for message in run_checks(tags=["flow_app"])] in (["flow_app.E001"], ["flow_app.E002"])


@pytest.mark.parametrize(
    "given",
    [
        {"DISPATCHER": "shop.missing.Dispatcher"},
        {"DISPATCHER": "."},
        {"DISPATCHER": "flow_app.conf.KEYS"},
        {"OBSERVERS": ["shop.missing.Observer"]},
        {"OBSERVERS": ["flow_app.conf.Options"]},
    ],
)
def test_a_path_that_leads_nowhere_is_refused_by_name(given: Any) -> None:
    (key,) = given
    with override_settings(FLOW_APP=given):
        with pytest.raises(ConfigurationError, match=rf"FLOW_APP\['{key}'\]"):
            get_engine()
        assert [message.id for message in run_checks(tags=["flow_app"])] == ["flow_app.E003"]


@pytest.mark.parametrize(
    ("path", "match"), [("builtins.repr", "makes no dispatcher"), ("builtins.int", r"int\(engine\) is not possible")]
)
def test_a_dispatcher_must_be_one(path: str, match: str) -> None:
    with override_settings(FLOW_APP={"DISPATCHER": path}), pytest.raises(ConfigurationError, match=match):
        get_engine()


def test_an_observer_class_must_need_nothing() -> None:
    class Needy(Audit):
        def __init__(self, channel: str) -> None: ...

    with override_settings(FLOW_APP={"OBSERVERS": [Needy]}), pytest.raises(ConfigurationError, match="OBSERVERS"):
        get_engine()


@pytest.mark.parametrize("entry", [Audit, Audit(), f"{__name__}.Audit"], ids=["class", "instance", "path"])
def test_an_observer_is_a_class_an_instance_or_a_path(entry: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, __name__, SimpleNamespace(Audit=Audit))
    with override_settings(FLOW_APP={"OBSERVERS": [entry]}):
        assert not run_checks(tags=["flow_app"])
        (observer,) = get_engine().services.observers
    assert isinstance(observer, Audit)


@pytest.mark.parametrize(
    ("given", "check_id", "hint"),
    [
        ({"LAESE": 1}, "flow_app.E001", "Did you mean 'LEASE'?"),
        (["LEASE"], "flow_app.E002", "every key is optional"),
        ({"LEASE": -1}, "flow_app.E002", "FLOW_APP = {'LEASE': 30}"),
        ({"BUILD": {"current": "no spaces"}}, "flow_app.E002", "FLOW_APP = {'BUILD': {'current': '"),
        ({"DRIVE_SLICE": 5}, "flow_app.E002", "FLOW_APP = {'DRIVE_SLICE': {'steps': 1000, 'seconds': 60}}"),
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
        ({"transaction_mode": "IMMEDIATE", "timeout": 30}, True),
        ({"transaction_mode": "IMMEDIATE", "timeout": "long", "init_command": WAL}, True),
        ({"transaction_mode": "IMMEDIATE", "timeout": None, "init_command": WAL}, True),
        ({"transaction_mode": "DEFERRED", "timeout": 30, "init_command": WAL}, True),
        ({"transaction_mode": "IMMEDIATE", "timeout": 30, "init_command": "PRAGMA journal_mode=DELETE;"}, True),
        ({"transaction_mode": "IMMEDIATE", "timeout": 30, "init_command": WAL}, False),
        ({"transaction_mode": "immediate", "timeout": 30, "init_command": "pragma journal_mode = 'wal'"}, False),
    ],
)
def test_sqlite_that_refuses_concurrent_writers_is_warned_about(
    options: Any, warned: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:", "OPTIONS": options}
    monkeypatch.setitem(settings.DATABASES, "default", database)
    messages = _messages(FLOW_APP={})
    assert ([check_id for check_id, _ in messages] == ["flow_app.W001"]) is warned
    assert all("PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL;" in hint for _, hint in messages)


def test_every_hint_of_a_bad_value_is_a_good_setting() -> None:
    for key in set(conf.KEYS) - {"OBSERVERS"}:
        ((check_id, hint),) = _messages(FLOW_APP={key: None})
        written: dict[str, Any] = {}
        exec(hint, written)
        assert check_id == "flow_app.E002"
        assert not _messages(FLOW_APP=written["FLOW_APP"]), hint


def test_a_transaction_round_every_request_is_warned_about(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(settings.DATABASES, "default", {**settings.DATABASES["default"], "ATOMIC_REQUESTS": True})
    ((check_id, hint),) = _messages(FLOW_APP={})
    assert check_id == "flow_app.W002"
    assert "after the request" in hint


def test_the_engine_follows_the_settings() -> None:
    before = get_engine()
    assert get_engine() is before
    with override_settings(FLOW_APP={"BUILD": {"current": "v2", "compatible": ["v1"]}}):
        engine = get_engine()
        assert engine.supports_runtime_build("v1")
        assert not engine.supports_runtime_build(None)
    assert get_engine() is not engine
    assert get_engine().supports_runtime_build(None)
