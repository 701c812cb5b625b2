"""The addresses. A project mounts them where it likes::

    path("flow/", include("flow_app.api.urls"))

and, to have its own say in all views, with a mixin::

    class OwnRuns:
        def filter_queryset_for(self, user, runs):
            return runs.labelled("team", user.profile.team)

    path("flow/", include(api_urls(OwnRuns)))
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from django.urls import URLPattern, path, register_converter
from django.urls.converters import PathConverter

from flow_app.api.links import APP_NAME
from flow_app.api.views import callback, hooks, parts, runs, site, verbs

app_name = APP_NAME


class AnyText(PathConverter):
    """The rest of an address, whatever it is: ids and tokens may have slashes in them, and callers send line ends."""

    regex = r"[\s\S]+"


register_converter(AnyText, "flow_text")

_VIEWS: tuple[tuple[str, type[Any], str], ...] = (
    ("", site.Root, "root"),
    ("workflows", site.Workflows, "workflows"),
    ("summary", site.Summary, "summary"),
    ("runs", runs.RunList, "runs"),
    ("runs/<str:run_id>", runs.RunDetail, "run"),
    ("runs/<str:run_id>/events", parts.RunEvents, "run-events"),
    ("runs/<str:run_id>/suspensions", parts.RunSuspensions, "run-suspensions"),
    ("runs/<str:run_id>/progress", parts.RunProgress, "run-progress"),
    ("runs/<str:run_id>/children", parts.RunChildren, "run-children"),
    ("runs/<str:run_id>/cancel", verbs.RunCancel, "run-cancel"),
    ("runs/<str:run_id>/force-cancel", verbs.RunForceCancel, "run-force-cancel"),
    ("runs/<str:run_id>/terminate", verbs.RunTerminate, "run-terminate"),
    ("runs/<str:run_id>/pause", verbs.RunPause, "run-pause"),
    ("runs/<str:run_id>/unpause", verbs.RunUnpause, "run-unpause"),
    ("runs/<str:run_id>/run-now", verbs.RunNow, "run-run-now"),
    ("runs/<str:run_id>/hooks", parts.RunHooks, "run-hooks"),
    ("runs/<str:run_id>/hooks/<flow_text:hook_id>", hooks.HookDetail, "hook"),
    ("hooks", hooks.HookList, "hooks"),
    ("callbacks", callback.BearerCallbackView, "callback-bearer"),
    ("callbacks/<flow_text:token>", callback.CallbackView, "callback"),
)


def api_urls(*mixins: type[Any]) -> tuple[list[URLPattern], str]:
    """The addresses, for ``include``; each view inherits from the mixins first."""
    return list(_patterns(mixins)), APP_NAME


def _patterns(mixins: tuple[type[Any], ...]) -> Iterable[URLPattern]:
    for route, view, name in _VIEWS:
        kind: Any = type(view.__name__, (*mixins, view), {"__doc__": view.__doc__}) if mixins else view
        yield path(route, kind.as_view(), name=name)


urlpatterns, _ = api_urls()
