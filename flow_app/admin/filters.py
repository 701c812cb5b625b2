"""The filters of the run list. Each is answered from an index, or from the latest runs; none reads the whole table."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

from django.contrib import admin
from django.contrib.admin.views.main import ChangeList
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.translation import gettext_lazy as _

from flow_app import conf
from flow_app.core.ports import WakeReason
from flow_app.core.snapshot import RunStatus
from flow_app.models import Run
from flow_app.presenting import OVERDUE_AFTER, status_badge

#: Workflows, versions and builds on offer are those of so many latest runs.
_LATEST = 1000
_OPEN = "open"
Choices = list[tuple[Any, Any]]


class StatusFilter(admin.SimpleListFilter):
    title = _("status")
    parameter_name = "status"

    def lookups(self, request: HttpRequest, model_admin: Any) -> Choices:
        return [(_OPEN, _("all open")), *((status.value, status_badge(status).word) for status in RunStatus)]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Run]) -> QuerySet[Run]:
        value = self.value()
        if value is None:
            return queryset
        runs: Any = queryset
        return runs.open() if value == _OPEN else queryset.filter(status=value)


class AttentionFilter(admin.SimpleListFilter):
    """Runs that may need somebody."""

    title = _("needs attention")
    parameter_name = "attention"

    def lookups(self, request: HttpRequest, model_admin: Any) -> Choices:
        return [
            ("blocked", _("blocked")),
            ("overdue", _("overdue")),
            ("no_worker", _("no worker for its build")),
            ("paused", _("paused")),
        ]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Run]) -> QuerySet[Run]:
        return in_need(queryset, self.value())


def in_need(runs: QuerySet[Run], need: str | None) -> QuerySet[Run]:
    """The runs that are blocked, overdue or paused, or have no worker; all of them when ``need`` is none of these."""
    rows: Any = runs
    match need:
        case "blocked":
            return rows.blocked()  # type: ignore[no-any-return]
        case "overdue":
            return rows.due(datetime.now(UTC) - OVERDUE_AFTER)  # type: ignore[no-any-return]
        case "no_worker":
            # The scheduler looks at them again and again, so they stand near the beginning of its index.
            soon = datetime.now(UTC) + conf.options().dispatch_grace + timedelta(minutes=10)
            return rows.due(soon).filter(wake_reason=WakeReason.NO_WORKER)  # type: ignore[no-any-return]
        case "paused":
            return rows.open().paused()  # type: ignore[no-any-return]
        case _:
            return runs


class RecentFilter(admin.SimpleListFilter):
    """Values of a column among the latest runs, and the one that is chosen, however old."""

    column = ""

    def lookups(self, request: HttpRequest, model_admin: Any) -> Choices:
        found = {row[_COLUMNS.index(self.column)] for row in _recent(request, model_admin)}
        chosen = request.GET.get(self.parameter_name or "")
        return [(value, value) for value in sorted(value for value in {*found, chosen} if value)]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Run]) -> QuerySet[Run]:
        return queryset if self.value() is None else queryset.filter(**{self.column: self.value()})


class WorkflowFilter(RecentFilter):
    title = _("workflow")
    parameter_name = column = "workflow"


class VersionFilter(RecentFilter):
    title = _("version")
    parameter_name = column = "version"


class BuildFilter(RecentFilter):
    title = _("build")
    parameter_name = column = "build"


_COLUMNS = ("workflow", "version", "build")


def _recent(request: HttpRequest, model_admin: Any) -> set[tuple[str, ...]]:
    """Workflow, version and build of the latest runs: one query for the three filters of a request."""
    known: set[tuple[str, ...]] | None = getattr(request, "_flow_app_recent", None)
    if known is None:
        rows = model_admin.get_queryset(request).order_by("-pk").values_list(*_COLUMNS)
        known = set(rows[:_LATEST])
        request._flow_app_recent = known  # type: ignore[attr-defined]
    return known


class TextFilter(admin.SimpleListFilter):
    """A value that people type, as there are too many to choose from."""

    template = "admin/flow_app/run/text_filter.html"
    placeholder: Any = ""

    def lookups(self, request: HttpRequest, model_admin: Any) -> Choices:
        return []

    def has_output(self) -> bool:
        return True

    def choices(self, changelist: ChangeList) -> Iterator[Any]:
        others = {name: values for name, values in changelist.filter_params.items() if name != self.parameter_name}
        yield {
            "selected": self.value() is not None,
            "value": self.value() or "",
            "placeholder": self.placeholder,
            "others": [(name, value) for name, values in others.items() for value in values],
            "query_string": changelist.get_query_string(remove=[str(self.parameter_name)]),
        }


class SubjectFilter(TextFilter):
    title = _("subject")
    parameter_name = "subject"

    def queryset(self, request: HttpRequest, queryset: QuerySet[Run]) -> QuerySet[Run]:
        runs: Any = queryset
        return runs.about(self.value()) if self.value() else queryset


class LabelFilter(TextFilter):
    title = _("label")
    parameter_name = "label"
    placeholder = _("name=value")

    def queryset(self, request: HttpRequest, queryset: QuerySet[Run]) -> QuerySet[Run]:
        runs: Any = queryset
        name, _sign, value = (self.value() or "").partition("=")
        return runs.labelled(name, value) if name else queryset


#: Names in the query string that the run list's own filters read.
PARAMETERS = frozenset(
    str(kind.parameter_name)
    for kind in (
        StatusFilter, AttentionFilter, WorkflowFilter, VersionFilter, BuildFilter, SubjectFilter, LabelFilter,
    )
)  # fmt: skip
