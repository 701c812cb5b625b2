"""System checks: what is set wrongly is said at start-up, with a setting line as the hint."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from django.apps import AppConfig
from django.conf import settings
from django.core import checks
from django.core.checks import CheckMessage, Error, register

from flow_app import conf
from flow_app.errors import ConfigurationError

_LEAST_TIMEOUT = 10
_WAL = re.compile(r"journal_mode\s*[=(]\s*['\"]?wal\b", re.IGNORECASE)

#: For each key a value that is right.
_EXAMPLES = {
    "DATABASE": "'default'",
    "DISPATCHER": "'flow_app.dispatch.InlineDispatcher'",
    "BUILD": "{'current': '2026-07-01', 'compatible': ['2026-06-01'], 'accept_unpinned': True}",
    "LEASE": "30",
    "DISPATCH_GRACE": "30",
    "DRIVE_SLICE": "{'steps': 1000, 'seconds': 60}",
    "REPLAY_LIMIT": "1024",
    "MAX_DELIVERIES": "5",
    "MAX_PAYLOAD": "1048576",
    "MAX_DEPTH": "64",
    "STEP_THREADS": "8",
    "OBSERVERS": "['shop.observers.AuditTrail']",
    "TRACEBACKS": "True",
}


@register("flow_app")
def check_settings(app_configs: Sequence[AppConfig] | None = None, **kwargs: Any) -> list[CheckMessage]:
    """E001 unknown key, E002 a bad value, E003 a dotted path that leads nowhere, E004 an unknown database."""
    try:
        given = conf.given()
    except ConfigurationError as error:
        return [Error(str(error), hint="FLOW_APP = {}  # every key is optional", id="flow_app.E002")]
    found = [*_check_keys(given), *_check_values(given)]
    if found:
        return found
    options = conf.options()
    if options.database not in settings.DATABASES:
        message = f"FLOW_APP['DATABASE'] names the unknown database {options.database!r}."
        return [Error(message, hint=_example("DATABASE"), id="flow_app.E004")]
    return [*_check_paths(options), *_check_database(options.database)]


def _check_keys(given: Mapping[Any, Any]) -> Iterable[CheckMessage]:
    for key in given:
        if key not in conf.KEYS:
            yield Error(f"FLOW_APP has the unknown key {key!r}.", hint=_did_you_mean(key), id="flow_app.E001")


def _did_you_mean(key: object) -> str:
    close = difflib.get_close_matches(str(key).upper(), conf.KEYS, n=1)
    return f"Did you mean {close[0]!r}?" if close else f"The keys are {', '.join(conf.KEYS)}."


def _example(key: str) -> str:
    return f"FLOW_APP = {{{key!r}: {_EXAMPLES[key]}}}"


def _check_values(given: Mapping[Any, Any]) -> Iterable[CheckMessage]:
    for key in conf.KEYS:
        if key in given:
            try:
                conf.read(key, given[key])
            except ConfigurationError as error:
                yield Error(str(error), hint=_example(key), id="flow_app.E002")


def _check_paths(options: conf.Options) -> Iterable[CheckMessage]:
    try:
        conf.dispatcher_factory(options.dispatcher)
    except ConfigurationError as error:
        yield Error(str(error), hint=_example("DISPATCHER"), id="flow_app.E003")
    for entry in options.observers:
        try:
            conf.observer(entry)
        except ConfigurationError as error:
            yield Error(str(error), hint=_example("OBSERVERS"), id="flow_app.E003")


def _check_database(alias: str) -> Iterable[CheckMessage]:
    """W001: SQLite settings under which writers fail with "database is locked". W002: a transaction round requests."""
    database = settings.DATABASES[alias]
    if database.get("ENGINE", "").endswith("sqlite3") and not _takes_writers(database.get("OPTIONS") or {}):
        yield checks.Warning(
            f"The SQLite database {alias!r} will refuse concurrent writers with 'database is locked'.",
            hint='"OPTIONS": {"timeout": 30, "transaction_mode": "IMMEDIATE", '
            '"init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL;"}',
            id="flow_app.W001",
        )
    if database.get("ATOMIC_REQUESTS"):
        yield checks.Warning(
            f"The database {alias!r} has ATOMIC_REQUESTS: what a request starts or answers is only driven once the "
            "request's transaction commits.",
            hint='"ATOMIC_REQUESTS": False, or expect runs to start after the request.',
            id="flow_app.W002",
        )


def _takes_writers(options: Mapping[str, Any]) -> bool:
    try:
        patient = float(options.get("timeout", 5)) >= _LEAST_TIMEOUT
    except (TypeError, ValueError):
        patient = False
    immediate = str(options.get("transaction_mode")).upper() == "IMMEDIATE"
    return patient and immediate and bool(_WAL.search(str(options.get("init_command"))))
