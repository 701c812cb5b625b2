"""Addresses of a project that has its own say: one team's runs, and no payload as it is."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.urls import include, path

from flow_app.api.urls import api_urls


class RedTeam:
    def filter_queryset_for(self, user: Any, runs: Any) -> Any:
        return runs.labelled("team", "red")

    def redact(self, value: Any) -> Any:
        return "hidden"


urlpatterns = [
    path("admin/", admin.site.urls),
    path("api/flow/", include(api_urls(RedTeam))),
    path("elsewhere/", include(api_urls(), namespace="second")),
]
