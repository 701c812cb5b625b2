"""Runs in the admin: the list, and the page of one run."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlencode

from django.contrib import admin
from django.contrib.admin.views.main import ChangeList
from django.core.exceptions import PermissionDenied
from django.db.models import QuerySet
from django.http import Http404, HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.urls import URLPattern, path
from django.utils.translation import gettext_lazy as _

from flow_app import conf, presenting
from flow_app.admin import filters, overview
from flow_app.admin.acts import RunActsMixin
from flow_app.admin.changelist import AFTER, BEFORE, RunChangeList
from flow_app.admin.columns import COLUMNS, RunColumns
from flow_app.admin.looking import LookingAdmin
from flow_app.admin.run_page import LANES, UPTO, read_page, version
from flow_app.models import Hook, Run

#: What the filters by date ask.
_DATES = frozenset(f"{name}__{how}" for name in ("created_at", "finished_at") for how in ("gte", "lt", "isnull"))


class RunAdmin(RunActsMixin, RunColumns, LookingAdmin):
    """The list of runs and the page of each. Seeing payloads needs ``view_payload``, all else ``view_run``.

    A project that knows its secrets better overrides ``redact``: it gets plain JSON and returns what may be shown.
    """

    redact = staticmethod(presenting.redact)

    list_display = COLUMNS
    list_display_links = ("run_id",)
    sortable_by = ()
    ordering = ("-pk",)
    search_fields = ("run_id__startswith",)
    search_help_text = _("How the run's id begins")
    list_filter = (
        filters.StatusFilter,
        filters.AttentionFilter,
        filters.WorkflowFilter,
        filters.VersionFilter,
        filters.BuildFilter,
        ("created_at", admin.DateFieldListFilter),
        ("finished_at", admin.DateFieldListFilter),
        filters.SubjectFilter,
        filters.LabelFilter,
    )

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[ChangeList]:
        return RunChangeList

    def lookup_allowed(self, lookup: str, value: Any, request: HttpRequest | None = None) -> bool:
        """Only what has an index: nobody searches through errors and payloads."""
        return lookup in filters.PARAMETERS or lookup in (BEFORE, AFTER) or lookup in _DATES

    def get_urls(self) -> list[URLPattern]:
        view = self.admin_site.admin_view
        pages = [
            path("overview/", view(self.overview_view), name="flow_app_run_overview"),
            path("<int:key>/live/", view(self.live_view), name="flow_app_run_live"),
        ]
        return [*pages, *super().get_urls()]

    # --- the list ---------------------------------------------------------------------------------------------------

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        more = {"title": _("Runs"), "overview_url": self._page("overview"), "may_start": self.may_start(request)}
        return super().changelist_view(request, {**more, **(extra_context or {})})

    # --- the page of a run ------------------------------------------------------------------------------------------

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """The page of a run: nothing on it is a form of Django's, as nothing is edited."""
        run = self._run(request, object_id)
        context = {
            **self.admin_site.each_context(request),
            **self.run_context(request, run),
            "opts": self.opts,
            "original": run,
            "title": _("Run"),
            "subtitle": run.run_id,
            "media": self.media,
            **(extra_context or {}),
        }
        return self._render(request, "page", context)

    def live_view(self, request: HttpRequest, key: int) -> HttpResponse:
        """The part of a run's page that changes; 204 when it shows the ``version`` that the page has already."""
        run = self._run(request, str(key))
        if request.GET.get("version") == version(run, now=datetime.now(UTC)):
            return HttpResponse(status=204)
        response = self._render(request, "live", self.run_context(request, run))
        response["Cache-Control"] = "no-store"
        return response

    def run_context(self, request: HttpRequest, run: Run) -> dict[str, Any]:
        """What ``admin/flow_app/run/live.html`` shows. A fixed number of queries."""
        may_see = request.user.has_perm("flow_app.view_payload")
        page = read_page(
            run,
            asked=request.GET,
            visible=self.get_queryset(request),
            visible_hooks=self._visible_hooks(request),
            shows_payloads=may_see,
            redact=self.redact,
        )
        query = {name: request.GET[name] for name in (LANES, UPTO) if name in request.GET}
        return {
            "page": page,
            "run": run,
            "acts": self.buttons(request, run),
            "live_url": self._page("live", run.pk) + (f"?{urlencode(query)}" if query else ""),
        }

    def _visible_hooks(self, request: HttpRequest) -> QuerySet[Hook]:
        """The hooks that this user may see: as the admin of hooks has it, where this site has one."""
        hooks = Hook.objects.using(conf.options().database)
        if not self.admin_site.is_registered(Hook):
            return hooks.all() if request.user.has_perm("flow_app.view_hook") else hooks.none()
        hook_admin = self.admin_site.get_model_admin(Hook)
        return hook_admin.get_queryset(request) if hook_admin.has_view_permission(request) else hooks.none()

    def _run(self, request: HttpRequest, key: str) -> Run:
        """Raises PermissionDenied before anything is looked up, Http404 for a run that is not there."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        run = self.get_object(request, key)
        if run is None:
            raise Http404(_("There is no such run."))
        if not self.has_view_permission(request, run):
            raise PermissionDenied
        return run

    # --- many runs --------------------------------------------------------------------------------------------------

    def overview_view(self, request: HttpRequest) -> HttpResponse:
        if not self.has_view_permission(request):
            raise PermissionDenied
        context = {
            **self.admin_site.each_context(request),
            "opts": self.opts,
            "title": _("Overview of runs"),
            "overview": overview.read_overview(self.get_queryset(request)),
            "list_url": self._page("changelist"),
            "media": self.media,
        }
        return self._render(request, "overview", context)

    def _render(self, request: HttpRequest, name: str, context: dict[str, Any]) -> HttpResponse:
        """``{% url "admin:…" %}`` in the template means this site, whatever its name."""
        request.current_app = self.admin_site.name
        return TemplateResponse(request, f"admin/flow_app/run/{name}.html", context)
