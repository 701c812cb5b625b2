"""Middleware of a strict site, and of a test whose browser cannot log in: it is somebody already."""

from __future__ import annotations

from django.contrib.auth import get_user_model
from django.http import HttpResponse

POLICY = "default-src 'self'; form-action 'self'; base-uri 'none'; object-src 'none'; frame-ancestors 'none'"


#: A page that the policy breaks.
BROKEN = "/broken/"


def policy(get_response):
    def middleware(request):
        response = HttpResponse("<script>1</script>") if request.path == BROKEN else get_response(request)
        response["Content-Security-Policy"] = POLICY
        return response

    return middleware


def superuser(get_response):
    def middleware(request):
        request.user = get_user_model().objects.get(username="superuser")
        return get_response(request)

    return middleware
