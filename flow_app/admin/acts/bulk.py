"""One act for many runs: confirmed once, done for each on its own, and what failed told apart."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from django.contrib import admin, messages
from django.contrib.admin import ModelAdmin, helpers
from django.core.exceptions import PermissionDenied
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from flow_app import get_engine
from flow_app.admin.acts.act import Act, ActForm, Deed, actor_of
from flow_app.admin.acts.buttons import may
from flow_app.admin.acts.doing import Outcome, Result, do
from flow_app.models import Run

logger = logging.getLogger(__name__)

#: Runs that one request may act on; more need another click, or a program.
MOST = 1000
_AT_A_TIME = 100
_NAMED = 5
_CONFIRMED = "confirmed"


def action_of(act: Act) -> Callable[..., HttpResponse | None]:
    """The act, as an action of Django's changelist."""

    @admin.action(permissions=[act.permission], description=act.label)  # type: ignore[arg-type]
    def action(model_admin: ModelAdmin[Any], request: HttpRequest, queryset: QuerySet[Run]) -> HttpResponse | None:
        return act_on_many(act, model_admin, request, queryset)

    action.__name__ = _name(act)
    return action


def act_on_many(
    act: Act, model_admin: ModelAdmin[Any], request: HttpRequest, queryset: QuerySet[Run]
) -> HttpResponse | None:
    """Ask first; when that is confirmed, act, and say what came of it. None: back to the list."""
    if not may(request, act):
        raise PermissionDenied
    keys = list(queryset.order_by("pk").values_list("pk", flat=True)[: MOST + 1])
    keys, more = keys[:MOST], len(keys) > MOST
    form = act.form(request.POST if _CONFIRMED in request.POST else None)
    if not form.is_valid():
        return _ask(act, model_admin, request, form, keys, more=more)
    tally = Tally(act)
    for run in _runs(model_admin, request, keys):
        tally.add(run, _do(act, model_admin, request, run, form))
    tally.tell(request)
    return None


@dataclass(slots=True)
class Tally:
    """What came of one act on many runs."""

    act: Act
    counts: dict[Outcome, int] = field(default_factory=lambda: defaultdict(int))
    refused: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))

    def add(self, run: Run, result: Result) -> None:
        self.counts[result.outcome] += 1
        if result.outcome is Outcome.REFUSED:
            self.refused[str(result.text)].append(run.run_id)

    def tell(self, request: HttpRequest) -> None:
        """Each outcome is a message of its own; refusals one for each reason, with the first runs that it hit."""
        if done := self.counts[Outcome.DONE]:
            text = ngettext("%(act)s: done for %(count)d run.", "%(act)s: done for %(count)d runs.", done)
            messages.success(request, self._text(text, done))
        if nothing := self.counts[Outcome.NOTHING]:
            text = ngettext(
                "%(act)s: nothing to do for %(count)d run.", "%(act)s: nothing to do for %(count)d runs.", nothing
            )
            messages.info(request, self._text(text, nothing))
        for reason, run_ids in self.refused.items():
            text = ngettext(
                "%(act)s: refused for %(count)d run (%(runs)s). %(reason)s",
                "%(act)s: refused for %(count)d runs (%(runs)s). %(reason)s",
                len(run_ids),
            )
            messages.error(request, self._text(text, len(run_ids), runs=_first(run_ids), reason=reason))

    def _text(self, text: str, count: int, **values: str) -> str:
        return text % {"act": self.act.label, "count": count, **values}


def _do(act: Act, model_admin: ModelAdmin[Any], request: HttpRequest, run: Run, form: ActForm) -> Result:
    """An error that nobody foresaw is one run's: the others have their turn."""
    deed = Deed(get_engine(), actor_of(request), run, form.cleaned_data)
    try:
        return do(act, deed, request=request, admin=model_admin)
    except Exception:
        logger.exception("%s failed for run %s", act.name, run.run_id, extra={"run_id": run.run_id})
        return Result(Outcome.REFUSED, _("An error occurred, which is in the log of the server."), "error")


def _runs(model_admin: ModelAdmin[Any], request: HttpRequest, keys: Sequence[int]) -> Iterator[Run]:
    for start in range(0, len(keys), _AT_A_TIME):
        yield from model_admin.get_queryset(request).filter(pk__in=keys[start : start + _AT_A_TIME]).order_by("pk")


def _ask(
    act: Act, model_admin: ModelAdmin[Any], request: HttpRequest, form: ActForm, keys: Sequence[int], *, more: bool
) -> HttpResponse:
    sample = list(_runs(model_admin, request, keys[: _NAMED * 4]))
    context = {
        **model_admin.admin_site.each_context(request),
        "opts": model_admin.opts,
        "title": act.label,
        "media": model_admin.media + form.media,
        "act": act,
        "form": form,
        "count": len(keys),
        "more": more,
        "most": MOST,
        "sample": sample,
        "unnamed": len(keys) - len(sample),
        "hidden": _hidden(act, request),
        "back_url": request.get_full_path(),
    }
    return TemplateResponse(request, "admin/flow_app/act_on_many.html", context)


def _hidden(act: Act, request: HttpRequest) -> list[tuple[str, str]]:
    """What makes Django's changelist select the same runs again when it is confirmed."""
    selected = request.POST.getlist(helpers.ACTION_CHECKBOX_NAME)
    fields = [(helpers.ACTION_CHECKBOX_NAME, key) for key in selected]
    across = request.POST.get("select_across", "0")
    return [*fields, ("select_across", across), ("action", _name(act)), (_CONFIRMED, "yes")]


def _name(act: Act) -> str:
    return act.name.replace("-", "_")


def _first(run_ids: Sequence[str]) -> str:
    return ", ".join(run_ids[:_NAMED]) + (", …" if len(run_ids) > _NAMED else "")
