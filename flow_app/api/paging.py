"""Pages by cursor: no counting, and no row twice or never while others are written."""

from __future__ import annotations

from typing import Any

from django.utils.translation import gettext as _
from rest_framework.exceptions import NotFound, ValidationError
from rest_framework.pagination import Cursor, CursorPagination
from rest_framework.request import Request

_DIGITS = 18  # no key has more


class FlowCursor(CursorPagination):
    """Ordered by one unique column of whole numbers."""

    page_size = 50
    max_page_size = 200
    page_size_query_param = "page_size"
    ordering = "-id"

    def get_page_size(self, request: Request) -> int | None:
        """As asked, and no more than the most. The framework would ignore what is no size."""
        text = request.query_params.get(self.page_size_query_param)
        if text is not None and not (text.isascii() and text.isdigit() and 0 < len(text) <= _DIGITS and int(text)):
            raise ValidationError({self.page_size_query_param: [_("Send a number from 1 on.")]}, code="invalid")
        return super().get_page_size(request)

    def decode_cursor(self, request: Request) -> Cursor | None:
        cursor = super().decode_cursor(request)
        position: Any = None if cursor is None else cursor.position  # text, whatever the stubs say
        if position is not None and not (position.isascii() and position.isdigit() and len(position) <= _DIGITS):
            raise NotFound(self.invalid_cursor_message)
        return cursor


class Newest(FlowCursor):
    """The latest first: the page's keys from an index, then its rows, for the reason that the admin's list gives."""

    def paginate_queryset(self, queryset: Any, request: Request, view: Any = None) -> list[Any] | None:
        bare = queryset.select_related(None).prefetch_related(None).only("pk")
        keys: Any = super().paginate_queryset(bare, request, view)
        if keys is None:
            return None
        found = {row.pk: row for row in queryset.order_by().filter(pk__in=[row.pk for row in keys])}
        return [found[row.pk] for row in keys if row.pk in found]  # what has changed meanwhile may be on it no more


class Oldest(FlowCursor):
    """The longest there first."""

    ordering = "id"


class BySequence(FlowCursor):
    """Events in their order; ``after`` leads on from the last one read."""

    page_size = 100
    max_page_size = 500
    ordering = "sequence"


PARAMETERS: frozenset[Any] = frozenset({FlowCursor.cursor_query_param, FlowCursor.page_size_query_param})
