"""The browsable pages, for a site whose Content-Security-Policy allows nothing inline."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.urls import NoReverseMatch, reverse
from rest_framework.renderers import BaseRenderer, BrowsableAPIRenderer
from rest_framework.views import APIView


class PagesRenderer(BrowsableAPIRenderer):
    """The REST framework's own pages without what they have inline: styles, and what logs a user out.

    The template extends ``rest_framework/api.html``, so what a project has changed there stays changed.
    """

    template = "flow_app/api/page.html"

    def get_context(self, data: Any, accepted_media_type: str | None, renderer_context: Mapping[str, Any]) -> Any:
        context = super().get_context(data, accepted_media_type, renderer_context)
        # The framework's template would put these into the page with styles of their own.
        context["flow_filter_form"] = context.pop("filter_form")
        context["code_style"] = ""
        context["flow_log_out_url"] = _log_out_url()
        return context


class PagesMixin(APIView):
    """The project's renderers; where the framework's own for people is among them, ours is in its place."""

    def get_renderers(self) -> list[BaseRenderer]:
        return [PagesRenderer() if type(found) is BrowsableAPIRenderer else found for found in super().get_renderers()]


def _log_out_url() -> str:
    """Where the framework's own view logs out; "" where the project has not mounted it."""
    try:
        return reverse("rest_framework:logout")
    except NoReverseMatch:
        return ""
