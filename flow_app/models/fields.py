"""Column types of the tables."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from django.conf import settings
from django.core.exceptions import ValidationError
from django.db import models
from django.db.backends.base.base import BaseDatabaseWrapper


def as_utc(value: datetime | str | None) -> datetime | None:
    """What a driver returned for an instant, aware and in UTC; what has no zone was stored in UTC."""
    if value is None:
        return None
    if isinstance(value, str):  # SQLite, for an expression that is no plain column
        value = datetime.fromisoformat(value)
    return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


def to_column(value: datetime | None, vendor: str) -> datetime | str | None:
    """An aware instant as the database driver takes it."""
    if value is None or vendor == "postgresql":
        return value
    return str(value.astimezone(UTC).replace(tzinfo=None))


class UtcDateTimeField(models.DateTimeField):  # type: ignore[type-arg]
    """An instant, stored and returned in UTC whatever USE_TZ and TIME_ZONE say.

    Django's own field refuses aware values when USE_TZ is off, and then loses the hour that a clock change repeats.
    """

    def get_internal_type(self) -> str:
        return "UtcDateTimeField"  # so that no backend converts by the project's settings

    def db_type(self, connection: BaseDatabaseWrapper) -> str:
        return str(connection.data_types["DateTimeField"])

    def to_python(self, value: Any) -> Any:
        try:
            return as_utc(super().to_python(value))
        except OverflowError:
            raise ValidationError(self.error_messages["invalid_datetime"], "invalid", {"value": value}) from None

    def get_prep_value(self, value: Any) -> Any:
        return self.to_python(value)

    def get_db_prep_value(self, value: Any, connection: BaseDatabaseWrapper, prepared: bool = False) -> Any:
        return to_column(value if prepared else self.get_prep_value(value), connection.vendor)

    def from_db_value(self, value: Any, *args: Any) -> datetime | None:
        return as_utc(value)

    def select_format(self, compiler: Any, sql: str, params: Any) -> tuple[str, Any]:
        """Without USE_TZ the PostgreSQL driver returns local time: an hour may stand for two, and some for none.

        What a subquery selects is left to the query around it: the same again would undo it.
        """
        if compiler.connection.vendor == "postgresql" and not settings.USE_TZ and not compiler.query.subquery:
            sql = f"({sql}) AT TIME ZONE 'UTC'"
        return sql, params
