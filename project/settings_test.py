"""Settings of the tests. ``FLOW_TEST_DB`` picks the database: sqlite (default, no server), postgres or mariadb.

Each test session has databases of its own, so that several can run at once on one machine. The name is handed down
in the environment: workers of pytest-xdist and processes that a test starts find the same database.
"""

from __future__ import annotations

import os
from typing import Any

from project.databases import SQLITE, SQLITE_OPTIONS, database
from project.settings import *  # noqa: F403
from project.settings import BASE_DIR

TEST_NAME = os.environ.setdefault("FLOW_TEST_NAME", f"test_flow_app_{os.getpid()}")


def sqlite() -> dict[str, Any]:
    # A file: threads share no in-memory database without "table is locked", which no timeout cures.
    folder = BASE_DIR / ".test-databases"
    folder.mkdir(exist_ok=True)
    path = folder / f"{TEST_NAME}.sqlite3"
    return {"ENGINE": SQLITE, "NAME": path, "OPTIONS": SQLITE_OPTIONS, "TEST": {"NAME": path}}


def postgres() -> dict[str, Any]:
    url = os.environ.get("FLOW_TEST_POSTGRES_URL", "postgres://postgres@127.0.0.1:5432/postgres")
    # What no test can see is not waited for: a crash of the server may forget the last commits.
    options = {"options": "-c synchronous_commit=off"}
    return {**database(url), "OPTIONS": options, "TEST": {"NAME": TEST_NAME}}


def mariadb() -> dict[str, Any]:
    url = os.environ.get("FLOW_TEST_MARIADB_URL", "mysql://root@127.0.0.1:3306/mysql")
    return {**database(url), "TEST": {"NAME": TEST_NAME, "CHARSET": "utf8mb4"}}


TEST_DATABASES = {"sqlite": sqlite, "postgres": postgres, "mariadb": mariadb}
DATABASES = {"default": TEST_DATABASES[os.environ.get("FLOW_TEST_DB", "sqlite")]()}

DEBUG = False
PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]

FLOW_APP = {}  # each test says what it needs; the rest is driven inline
CELERY_BROKER_URL = "memory://"
CELERY_DB_REUSE_MAX = None  # threads of embedded workers come and go: none may leave a connection behind
