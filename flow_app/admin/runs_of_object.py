"""The runs about an object, on the admin page of the project's own model."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from django.contrib import admin
from django.contrib.admin.utils import flatten_fieldsets
from django.db.models import Model
from django.forms import Media
from django.http import HttpRequest
from django.template.loader import render_to_string
from django.urls import reverse
from django.utils.http import urlencode
from django.utils.safestring import SafeString
from django.utils.translation import gettext_lazy as _

from flow_app.models import Run
from flow_app.presenting import badges, glance, headline

if TYPE_CHECKING:
    Base = admin.ModelAdmin[Any]
else:
    Base = object

_RUNS = "flow_runs"
#: Runs that the page shows; the list of runs has the others.
MOST = 10


class FlowRunsMixin(Base):
    """Adds what runs do about an object to its page, for those who may see runs::

        @admin.register(Invoice)
        class InvoiceAdmin(FlowRunsMixin, admin.ModelAdmin):
            def flow_subject(self, obj):
                return f"invoice:{obj.number}"

    A project that lists its ``fieldsets`` may place ``"flow_runs"`` itself; else it comes last.
    """

    def flow_subject(self, obj: Any) -> str:
        """The subject of the object's runs: ``order:7`` for the order with the primary key 7, unless overridden."""
        return f"{obj._meta.model_name}:{obj.pk}"

    @property
    def media(self) -> Media:
        return super().media + Media(css={"all": ["flow_app/flow_app.css"]})

    def get_readonly_fields(self, request: HttpRequest, obj: Model | None = None) -> Any:
        fields = [field for field in super().get_readonly_fields(request, obj) if field != _RUNS]
        return [*fields, self._field(request)] if self._shows_runs(request, obj) else fields

    def get_fieldsets(self, request: HttpRequest, obj: Model | None = None) -> Any:
        """Where the project placed it, else last; nowhere, for who may not see runs."""
        shown = [self._field(request)] if self._shows_runs(request, obj) else []
        sets: Any = [_placed(*fieldset, shown=shown) for fieldset in super().get_fieldsets(request, obj)]
        if not shown or shown[0] in flatten_fieldsets(sets):
            return sets
        return [*sets, (_("Workflows"), {"fields": shown})]

    def _field(self, request: HttpRequest) -> Any:
        """The field of one request, always the same: what it shows depends on who asks."""
        known = getattr(request, "_flow_app_runs", None)
        if known is None:

            @admin.display(description=_("runs"))
            def flow_runs(obj: Any) -> SafeString:
                return self._runs_of(request, obj)

            known = request._flow_app_runs = flow_runs  # type: ignore[attr-defined]
        return known

    def _runs_of(self, request: HttpRequest, obj: Any) -> SafeString:
        """The latest runs, of those that the admin of runs lets this user see."""
        subject, site = self.flow_subject(obj), self.admin_site
        found = site.get_model_admin(Run).get_queryset(request).filter(subject=subject).order_by("-pk")
        runs = list(found.defer("labels")[: MOST + 1])
        waiting, now = glance(runs[:MOST]), datetime.now(UTC)
        lines = [
            {
                "run": run,
                "url": reverse("admin:flow_app_run_change", args=[run.pk], current_app=site.name),
                "badges": badges(run, now=now),
                "headline": headline(run, waiting.get(run.pk), now=now),
            }
            for run in runs[:MOST]
        ]
        query = urlencode({"subject": subject})
        all_url = f"{reverse('admin:flow_app_run_changelist', current_app=site.name)}?{query}"
        context = {"lines": lines, "all_url": all_url if len(runs) > MOST else ""}
        return render_to_string("admin/flow_app/runs_of_object.html", context)

    def _shows_runs(self, request: HttpRequest, obj: Model | None) -> bool:
        """For an object that exists, a user who may see runs, and a site that has them."""
        return obj is not None and self.admin_site.is_registered(Run) and request.user.has_perm("flow_app.view_run")


def _placed(name: Any, options: Any, *, shown: list[Any]) -> tuple[Any, dict[str, Any]]:
    """The fieldset with the field itself in the place of its name, or without it."""
    fields = [item for field in options["fields"] for item in (shown if field == _RUNS else [field])]
    return name, {**options, "fields": fields}
