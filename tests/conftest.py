from __future__ import annotations

from django.conf import settings


def pytest_report_header() -> str:
    database = settings.DATABASES["default"]
    return f"database: {database['ENGINE'].rpartition('.')[2]}, {database['TEST']['NAME']}"
