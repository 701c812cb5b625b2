"""System checks of the database that FLOW_APP['DATABASE'] names, and of what the project's routers make of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from django.apps import AppConfig
from django.conf import settings
from django.core.checks import CheckMessage, Error, Tags, Warning, register  # noqa: A004 - Django's own name
from django.db import connections, router

from flow_app import conf
from flow_app.errors import ConfigurationError
from flow_app.models import Run
from flow_app.store.dialects import dialect_of


@register("flow_app")
def check_where_runs_are_kept(app_configs: Sequence[AppConfig] | None = None, **kwargs: Any) -> list[CheckMessage]:
    """E005 no autocommit, E006 a database of another kind, W003 and W004 routers that lead elsewhere."""
    alias = _alias()
    return [] if alias is None else [*_check_connection(alias), *_check_routers(alias)]


@register(Tags.database)
def check_the_server(
    app_configs: Sequence[AppConfig] | None = None, databases: Sequence[str] | None = None, **kwargs: Any
) -> list[CheckMessage]:
    """E007 tables without transactions, W005 no SKIP LOCKED. Asks the server: `check --database`, and migrate."""
    alias = _alias()
    return list(_check_features(alias)) if alias is not None and alias in (databases or ()) else []


def _alias() -> str | None:
    """The alias, if E001 to E004 have nothing to say about it."""
    try:
        alias = conf.options().database
    except ConfigurationError:
        return None
    return alias if alias in settings.DATABASES else None


def _check_connection(alias: str) -> Iterator[CheckMessage]:
    try:
        dialect_of(connections[alias])
    except ConfigurationError as error:
        yield Error(str(error), hint="FLOW_APP = {'DATABASE': 'an alias of such a database'}", id="flow_app.E006")
    if not settings.DATABASES[alias].get("AUTOCOMMIT", True):
        yield Error(
            f"The database {alias!r} has AUTOCOMMIT off: what is written stays in a transaction that nobody ends.",
            hint='"AUTOCOMMIT": True,',
            id="flow_app.E005",
        )


def _check_routers(alias: str) -> Iterator[CheckMessage]:
    if not router.allow_migrate(alias, "flow_app", model_name="run"):
        yield Warning(
            f"A database router keeps flow_app's tables out of {alias!r}, where FLOW_APP['DATABASE'] says they are.",
            hint=f"allow_migrate({alias!r}, 'flow_app') must be True in DATABASE_ROUTERS = {_routers()}",
            id="flow_app.W003",
        )
    elsewhere = {router.db_for_read(Run), router.db_for_write(Run)} - {alias}
    if elsewhere:
        names = " and ".join(map(repr, sorted(elsewhere)))
        yield Warning(
            f"The engine keeps runs in {alias!r}, but Run.objects and the admin look for them in {names}.",
            hint=f"FLOW_APP = {{'DATABASE': {min(elsewhere)!r}}}, or a router in DATABASE_ROUTERS whose db_for_read "
            f"and db_for_write answer {alias!r} for the models of 'flow_app'",
            id="flow_app.W004",
        )


def _routers() -> str:
    return str([entry if isinstance(entry, str) else type(entry).__name__ for entry in settings.DATABASE_ROUTERS])


def _check_features(alias: str) -> Iterator[CheckMessage]:
    connection = connections[alias]
    if not connection.features.supports_transactions:
        yield Error(
            f"The tables of {alias!r} take no part in transactions, so that an append may be kept in half.",
            hint='"OPTIONS": {"init_command": "SET default_storage_engine=INNODB"},',
            id="flow_app.E007",
        )
    if connection.features.has_select_for_update and not connection.features.has_select_for_update_skip_locked:
        yield Warning(
            f"The server of {alias!r} knows no SKIP LOCKED: schedulers that tick at once wait for each other.",
            hint="Run one scheduler alone, or use MariaDB 10.6, MySQL 8.0.1 or PostgreSQL 12 and newer.",
            id="flow_app.W005",
        )
