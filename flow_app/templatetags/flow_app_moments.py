"""Instants in templates. Django's own filter leaves them in UTC where a project has USE_TZ off."""

from __future__ import annotations

from datetime import datetime

from django import template
from django.utils.formats import date_format
from django.utils.html import format_html
from django.utils.safestring import SafeString

from flow_app.presenting import here

register = template.Library()


@register.filter
def moment(at: datetime | None) -> SafeString | str:
    """Date and time to the second, in the reader's zone, with the exact instant for machines and on hover."""
    if at is None:
        return ""
    there, exact = here(at), at.isoformat()
    text = f"{date_format(there, 'DATE_FORMAT')} {there:%H:%M:%S}"
    return format_html('<time datetime="{}" title="{}">{}</time>', exact, exact, text)
