"""Addresses within the API, wherever and under whatever namespace the project has mounted it."""

from __future__ import annotations

from rest_framework.request import Request
from rest_framework.reverse import reverse

APP_NAME = "flow_app_api"


def link(request: Request, name: str, **kwargs: str) -> str:
    """The absolute address of one of the API's views."""
    match = request.resolver_match
    namespace = APP_NAME if match is None else match.namespace
    return reverse(f"{APP_NAME}:{name}", kwargs=kwargs, request=request, current_app=namespace)
