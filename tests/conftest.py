from __future__ import annotations

from collections.abc import Iterator

import pytest
from django.conf import settings
from django.db import DEFAULT_DB_ALIAS, connections, transaction
from django.test import TransactionTestCase

#: What migrations write, once: no test changes it.
_KEPT = {"auth_permission", "django_content_type"}


def pytest_report_header() -> str:
    database = settings.DATABASES["default"]
    return f"database: {database['ENGINE'].rpartition('.')[2]}, {database['TEST']['NAME']}"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "make_cluster" in getattr(item, "fixturenames", ()):
            item.add_marker("cluster")


@pytest.fixture(autouse=True, scope="session")
def _cheap_flush() -> Iterator[None]:
    """Empty the tables after a transactional test, and no more: Django truncates, and then migrates all data anew."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TransactionTestCase, "_fixture_teardown", lambda case: _empty_tables())
        yield


def _empty_tables() -> None:
    connection = connections[DEFAULT_DB_ALIAS]
    tables = set(connection.introspection.django_table_names(only_existing=True, include_views=False)) - _KEPT
    with connection.constraint_checks_disabled(), transaction.atomic(), connection.cursor() as cursor:
        for table in sorted(tables):
            cursor.execute(f"DELETE FROM {connection.ops.quote_name(table)}")
