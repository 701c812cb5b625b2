"""Fields of what is read and what is sent."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from django.utils.translation import gettext as _
from rest_framework import serializers

from flow_app import conf
from flow_app.api.schema import ANY_JSON, field_of
from flow_app.core.identifiers import MAX_ID, check_id
from flow_app.core.payload import Payload, clean_text
from flow_app.errors import FlowError, PayloadError


def shown(value: Any) -> Any:
    """Plain JSON whose texts every renderer can write: what UTF-8 has no form for is escaped."""
    if isinstance(value, str):
        return clean_text(value)
    if isinstance(value, dict):
        return {clean_text(key): shown(item) for key, item in value.items()}
    if isinstance(value, list):
        return [shown(item) for item in value]
    return value


def plain(text: str | None) -> Any:
    """Stored canonical text as plain JSON; None for nothing."""
    return None if text is None else plain_tree(json.loads(text))


def plain_tree(tree: Any) -> Any:
    """The same for what was decoded from stored text, or a part of it."""
    return shown(Payload(tree).plain)


class Instant(serializers.DateTimeField):
    """A time in UTC, ``2030-01-01T10:00:00Z``, whatever the site's time zone is, and whether or not it uses zones."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(default_timezone=UTC, **kwargs)

    def to_representation(self, value: datetime) -> str:
        return value.astimezone(UTC).isoformat().replace("+00:00", "Z")


class Text(serializers.CharField):
    """Text that workflows and callers choose."""

    def to_representation(self, value: Any) -> str:
        return clean_text(str(value))


@field_of(ANY_JSON)
class AnyJson(serializers.JSONField):
    """JSON of any kind, as large and as deep as a payload may be."""

    def __init__(self, **kwargs: Any) -> None:
        kwargs.setdefault("allow_null", True)
        kwargs.setdefault("style", {"base_template": "textarea.html"})
        super().__init__(**kwargs)

    def to_internal_value(self, data: Any) -> Any:
        if getattr(data, "is_json_string", False):  # a form's box
            data = self.from_text(data)
        try:
            Payload.of(data, what="value", limits=conf.options().limits)
        except PayloadError as error:
            raise serializers.ValidationError(f"{error.path} {error.reason}", code=error.code) from None
        return data

    @staticmethod
    def from_text(text: str) -> Any:
        """What a person typed."""
        try:
            return json.loads(text)
        except (ValueError, RecursionError):
            raise serializers.ValidationError(_("is not valid JSON"), code="invalid") from None


class Words(serializers.CharField):
    """Text and nothing else, kept as it was sent."""

    def __init__(self, **kwargs: Any) -> None:
        kwargs.setdefault("trim_whitespace", False)
        super().__init__(**kwargs)

    def to_internal_value(self, data: Any) -> str:
        if not isinstance(data, str):
            self.fail("invalid")
        return str(super().to_internal_value(data))


class Id(Words):
    """An id or a name of the engine's: up to 200 characters, none of them a control character."""

    def __init__(self, **kwargs: Any) -> None:
        kwargs.setdefault("max_length", MAX_ID)
        super().__init__(**kwargs)

    def to_internal_value(self, data: Any) -> str:
        text = super().to_internal_value(data)
        return str(checked(lambda: check_id(text, what="value")))


def checked(act: Callable[[], Any]) -> Any:
    """What ``act`` returns; what the engine refuses in it is an error of the field."""
    try:
        return act()
    except FlowError as error:
        raise serializers.ValidationError(clean_text(str(error), limit=500), code=error.code) from None
