"""A list of runs that is as quick on its thousandth page as on its first: newest first, from key to key, uncounted."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from django.contrib.admin.options import IncorrectLookupParameters
from django.contrib.admin.views.main import ChangeList
from django.db.models import QuerySet
from django.db.models.functions import Left
from django.http import HttpRequest

from flow_app.models import Run
from flow_app.presenting import glance

BEFORE, AFTER = "before", "after"
#: Columns without a bound, which a list does not read; of two of them it reads how they begin.
WIDE = ("error", "blocked_text", "labels", "progress_message")
_BEGINNING = 400


class RunChangeList(ChangeList):
    """One page of runs, with what each of them waits for. Three queries, however many runs there are.

    Keys are asked for first: an index has them, and so the database walks the index of what is filtered by and not the
    table from its new end, at which old versions and builds have no runs.
    """

    newer: str = ""
    older: str = ""

    def get_filters_params(self, params: dict[str, Any] | None = None) -> dict[str, Any]:
        found = super().get_filters_params(params)
        return {name: value for name, value in found.items() if name not in (BEFORE, AFTER)}

    def get_query_string(self, new_params: Any = None, remove: Any = None) -> str:
        return super().get_query_string(new_params, [*(remove or ()), BEFORE, AFTER])

    def get_ordering(self, request: HttpRequest, queryset: QuerySet[Any]) -> list[Any]:
        return ["-pk"]

    def get_results(self, request: HttpRequest) -> None:
        runs, has_newer, has_older = self._page()
        self.newer = self.get_query_string({AFTER: runs[0].pk}) if has_newer and runs else ""
        self.older = self.get_query_string({BEFORE: runs[-1].pk}) if has_older and runs else ""
        self._furnish(runs)
        # What Django's templates ask for. Nothing is counted, so "all that match" cannot be selected either.
        self.result_list = runs
        self.result_count = self.full_result_count = len(runs)
        self.show_full_result_count = False
        self.show_admin_actions = bool(runs)
        self.can_show_all = self.multi_page = False
        self.paginator = self.model_admin.get_paginator(request, runs, self.list_per_page)  # type: ignore[arg-type]

    def _page(self) -> tuple[list[Run], bool, bool]:
        """The runs of this page, and whether there are newer and older ones."""
        size = self.list_per_page
        keys = self.queryset.values_list("pk", flat=True)
        if AFTER in self.params:
            found = list(keys.filter(pk__gt=self._key(AFTER)).order_by("pk")[: size + 1])
            return self._runs(found[:size]), len(found) > size, True
        if BEFORE in self.params:
            keys = keys.filter(pk__lt=self._key(BEFORE))
        found = list(keys[: size + 1])
        return self._runs(found[:size]), BEFORE in self.params, len(found) > size

    def _runs(self, keys: list[int]) -> list[Run]:
        rows = self.root_queryset.filter(pk__in=keys).order_by("-pk").defer(*WIDE)
        beginnings = {
            "error_beginning": Left("error", _BEGINNING),
            "blocked_beginning": Left("blocked_text", _BEGINNING),
        }
        return list(rows.annotate(**beginnings))

    def _key(self, name: str) -> int:
        text = self.params[name]
        if not (text.isascii() and text.isdigit() and len(text) < 19):
            raise IncorrectLookupParameters(f"{name} is no key of a run")
        return int(text)

    @staticmethod
    def _furnish(runs: list[Run]) -> None:
        """Put with each run what its columns show, so that none of them asks the database."""
        waiting, now = glance(runs), datetime.now(UTC)
        for run in runs:
            run.error, run.blocked_text = run.error_beginning, run.blocked_beginning  # type: ignore[attr-defined]
            run.seen_waiting, run.seen_at = waiting.get(run.pk), now  # type: ignore[attr-defined]
