"""System checks: what is set wrongly is said at start-up, with a setting line as the hint."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from typing import Any

from django.apps import AppConfig
from django.conf import settings
from django.core import checks
from django.core.checks import CheckMessage, Error, register
from django.utils.module_loading import import_string

from flow_app import conf
from flow_app.errors import FlowError

_LEAST_TIMEOUT = 10


@register("flow_app")
def check_settings(app_configs: Sequence[AppConfig] | None = None, **kwargs: Any) -> list[CheckMessage]:
    """E001 unknown key, E002 a bad value, E003 a dotted path that does not import, E004 an unknown database."""
    given = getattr(settings, "FLOW_APP", {})
    unknown = [key for key in given if key not in conf.KEYS] if isinstance(given, dict) else []
    if unknown:
        return [
            Error(f"FLOW_APP has the unknown key {key!r}.", hint=_did_you_mean(key), id="flow_app.E001")
            for key in unknown
        ]
    try:
        options = conf.options()
        options.builds  # noqa: B018 - reading it validates the build ids
    except FlowError as error:
        return [Error(str(error), hint="FLOW_APP = {}  # every key is optional", id="flow_app.E002")]
    if options.database not in settings.DATABASES:
        hint = "FLOW_APP = {'DATABASE': 'default'}"
        return [
            Error(
                f"FLOW_APP['DATABASE'] names the unknown database {options.database!r}.", hint=hint, id="flow_app.E004"
            )
        ]
    return [*_check_paths(options), *_check_sqlite(options.database)]


def _did_you_mean(key: str) -> str:
    close = difflib.get_close_matches(str(key).upper(), conf.KEYS, n=1)
    return f"Did you mean {close[0]!r}?" if close else f"The keys are {', '.join(conf.KEYS)}."


def _check_paths(options: conf.Options) -> Iterable[CheckMessage]:
    for key, path in [("DISPATCHER", options.dispatcher), *(("OBSERVERS", path) for path in options.observers)]:
        if not isinstance(path, str):
            continue
        try:
            import_string(path)
        except ImportError as error:
            hint = f"FLOW_APP = {{{key!r}: 'package.module.Class'}}"
            yield Error(f"FLOW_APP[{key!r}] cannot be imported: {error}", hint=hint, id="flow_app.E003")


def _check_sqlite(alias: str) -> Iterable[CheckMessage]:
    """W001: SQLite settings under which concurrent writers fail with "database is locked"."""
    database = settings.DATABASES[alias]
    if not database["ENGINE"].endswith("sqlite3"):
        return
    options = database.get("OPTIONS") or {}
    if options.get("transaction_mode") != "IMMEDIATE" or float(options.get("timeout", 5)) < _LEAST_TIMEOUT:
        yield checks.Warning(
            f"The SQLite database {alias!r} will refuse concurrent writers with 'database is locked'.",
            hint='"OPTIONS": {"timeout": 30, "transaction_mode": "IMMEDIATE", '
            '"init_command": "PRAGMA journal_mode=WAL;"}',
            id="flow_app.W001",
        )
