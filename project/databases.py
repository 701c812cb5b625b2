"""Database URLs, read into Django's form with the options that hold up under many writers."""

from __future__ import annotations

from typing import Any

import dj_database_url

SQLITE = "django.db.backends.sqlite3"
POSTGRESQL = "django.db.backends.postgresql"

# Without WAL and IMMEDIATE, concurrent writers fail with "database is locked", whatever the timeout.
SQLITE_OPTIONS: dict[str, Any] = {
    "timeout": 30,
    "transaction_mode": "IMMEDIATE",
    "init_command": (
        "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL; "
        "PRAGMA temp_store=MEMORY; PRAGMA journal_size_limit=67108864;"
    ),
}

# What a worker says again and again is planned once. Not for a pooler that knows no prepared statements.
POSTGRESQL_OPTIONS: dict[str, Any] = {"prepare_threshold": 5}


def database(url: str, *, keep: int = 0) -> dict[str, Any]:
    """Settings of the database at ``url``: ``sqlite:///path``, ``postgres://user@host:port/name`` or ``mysql://...``.

    Connections are kept for ``keep`` seconds.
    """
    config: dict[str, Any] = {**dj_database_url.parse(url, conn_max_age=keep, conn_health_checks=True)}
    if config["ENGINE"] == SQLITE:
        config["OPTIONS"] = {**SQLITE_OPTIONS, **config.get("OPTIONS", {})}
    elif config["ENGINE"] == POSTGRESQL:
        config["OPTIONS"] = {**POSTGRESQL_OPTIONS, **config.get("OPTIONS", {})}
    return config
