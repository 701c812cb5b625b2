"""Filters over columns that have an index. What is not a filter is refused, not ignored."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import django_filters
from django import forms
from django.apps import apps
from django.db.models import QuerySet
from django.http import QueryDict
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django_filters import rest_framework as filters
from rest_framework.exceptions import ValidationError
from rest_framework.request import Request
from rest_framework.settings import api_settings

from flow_app import get_engine
from flow_app.api.paging import PARAMETERS
from flow_app.core.snapshot import RunStatus
from flow_app.models import Hook, Run
from flow_app.presenting import OVERDUE_AFTER

_TEXT = {"max_length": 200}
#: Labels that one query may name: each is a table more to be joined.
_MOST_LABELS = 10


class _InstantField(django_filters.fields.IsoDateTimeField):
    def clean(self, value: Any) -> datetime | None:
        cleaned: datetime | None = super().clean(value)
        try:
            return cleaned if cleaned is None else cleaned.astimezone(UTC)
        except (OverflowError, ValueError):
            raise forms.ValidationError(_("Enter a time that a calendar has."), code="invalid") from None


class InstantFilter(filters.IsoDateTimeFilter):
    field_class = _InstantField


class _YesNoField(forms.TypedChoiceField):
    """True, false or not asked. The framework's own field would read any other word as not asked; this refuses it."""

    def __init__(self, **kwargs: Any) -> None:
        choices = [("", "---"), ("true", gettext_lazy("Yes")), ("false", gettext_lazy("No"))]
        super().__init__(choices=choices, coerce=lambda text: text == "true", empty_value=None, **kwargs)

    def to_python(self, value: Any) -> str:
        text = str(super().to_python(value)).lower()
        return {"1": "true", "0": "false"}.get(text, text)


class YesNoFilter(filters.BooleanFilter):
    field_class = _YesNoField

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(widget=forms.Select, **kwargs)


class RunFilters(filters.FilterSet):
    """Which runs."""

    status = filters.MultipleChoiceFilter(choices=[(status.value, status.value) for status in RunStatus])
    workflow = filters.CharFilter(**_TEXT)
    version = filters.CharFilter(**_TEXT)
    build = filters.CharFilter(**_TEXT)
    subject = filters.CharFilter(**_TEXT, help_text=gettext_lazy("The business object, exactly."))
    label = filters.CharFilter(method="with_labels", help_text=gettext_lazy("`name:value`; several must all fit."))
    run_id = filters.CharFilter(lookup_expr="startswith", max_length=128, help_text=gettext_lazy("How its id begins."))
    blocked = YesNoFilter(method="only_blocked", help_text=gettext_lazy("Does an error stop it?"))
    overdue = YesNoFilter(method="only_overdue", help_text=gettext_lazy("Was it due, and nobody came?"))
    created_after = InstantFilter(field_name="created_at", lookup_expr="gte")
    created_before = InstantFilter(field_name="created_at", lookup_expr="lt")
    finished_after = InstantFilter(field_name="finished_at", lookup_expr="gte")
    finished_before = InstantFilter(field_name="finished_at", lookup_expr="lt")

    class Meta:
        model = Run
        fields: list[str] = []

    def with_labels(self, runs: Any, name: str, value: str) -> Any:
        for label in _labels(self.data.getlist(name)):
            runs = runs.labelled(*label)
        return runs

    def only_blocked(self, runs: Any, name: str, value: bool) -> Any:
        return runs.blocked() if value else runs.exclude(pk__in=runs.blocked())

    def only_overdue(self, runs: Any, name: str, value: bool) -> Any:
        overdue = runs.open().due(get_engine().store.clock.now() - OVERDUE_AFTER)
        return overdue if value else runs.exclude(pk__in=overdue)


class HookFilters(filters.FilterSet):
    """Which hooks, by their runs."""

    workflow = filters.CharFilter(field_name="run__workflow", **_TEXT)
    subject = filters.CharFilter(
        field_name="run__subject", **_TEXT, help_text=gettext_lazy("The run's business object, exactly.")
    )
    label = filters.CharFilter(
        method="with_labels", help_text=gettext_lazy("`name:value` of the run; several must all fit.")
    )

    class Meta:
        model = Hook
        fields: list[str] = []

    def with_labels(self, hooks: Any, name: str, value: str) -> Any:
        for label in _labels(self.data.getlist(name)):
            hooks = hooks.filter(run__in=Run.objects.using(hooks.db).labelled(*label))
        return hooks


def _labels(pairs: list[str]) -> list[tuple[str, str]]:
    if len(pairs) > _MOST_LABELS:
        raise ValidationError({"label": [_("These are too many labels.")]}, code="invalid")
    return [_label(pair) for pair in pairs]


def _label(pair: str) -> tuple[str, str]:
    name, colon, value = pair.partition(":")
    if not colon:
        raise ValidationError({"label": [_("Write name:value.")]}, code="invalid")
    return name, value


def given(params: QueryDict) -> QueryDict:
    """What is asked for: an empty value asks nothing, and forms send many."""
    asked = params.copy()
    for name, values in params.lists():
        asked.setlist(name, [value for value in values if value])
        if not asked.getlist(name):
            del asked[name]
    return asked


class FlowFilterBackend(filters.DjangoFilterBackend):
    """django-filter's, but strict."""

    def get_filterset_kwargs(self, request: Request, queryset: QuerySet[Any], view: Any) -> dict[str, Any]:
        kwargs: dict[str, Any] = super().get_filterset_kwargs(request, queryset, view)
        return {**kwargs, "data": given(request.query_params)}

    def filter_queryset(self, request: Request, queryset: QuerySet[Any], view: Any) -> QuerySet[Any]:
        filterset = self.get_filterset_class(view, queryset)
        known = {*PARAMETERS, api_settings.URL_FORMAT_OVERRIDE, *view.other_parameters}
        if filterset is not None:
            known |= set(filterset.base_filters)
        if strangers := {name: [_("There is no such filter.")] for name in request.query_params if name not in known}:
            raise ValidationError(strangers, code="unknown")
        filtered: QuerySet[Any] = super().filter_queryset(request, queryset, view)
        return filtered

    def to_html(self, request: Request, queryset: QuerySet[Any], view: Any) -> str | None:
        """The form of the browsable pages, where the project has installed the app that has its template."""
        if not apps.is_installed("django_filters"):
            return ""
        html: str | None = super().to_html(request, queryset, view)
        return html
