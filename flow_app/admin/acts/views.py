"""The page on which an act is confirmed, and the POST that does it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseNotAllowed, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils.html import format_html

from flow_app import get_engine
from flow_app.admin.acts.act import Act, ActForm, Deed, Target, actor_of, run_of
from flow_app.admin.acts.buttons import act_url, may
from flow_app.admin.acts.catalogue import named
from flow_app.admin.acts.doing import Outcome, Result, do
from flow_app.admin.acts.standing import standing
from flow_app.models import Hook
from flow_app.presenting import facts_of

if TYPE_CHECKING:
    from django.contrib.admin import ModelAdmin

    Base = ModelAdmin[Any]
else:
    Base = object

#: What ``back`` says on pages of runs.
RUN = "run"
LEVELS = {Outcome.DONE: messages.SUCCESS, Outcome.NOTHING: messages.INFO, Outcome.REFUSED: messages.ERROR}


class ActsMixin(Base):
    """For the admin of runs and the admin of hooks: a page per act. ``acts`` are the ones its objects have."""

    acts: Sequence[Act] = ()

    def get_urls(self) -> list[URLPattern]:
        name = f"flow_app_{self.opts.model_name}_act"
        page = path("<int:key>/act/<slug:act>/", self.admin_site.admin_view(self.act_view), name=name)
        return [page, *super().get_urls()]

    def act_view(self, request: HttpRequest, key: int, act: str) -> HttpResponse:
        """GET asks, POST does. Who may not is told so before anything is looked up."""
        found = named(self.acts, act)
        if found is None:
            raise Http404
        if request.method not in ("GET", "HEAD", "POST"):
            return HttpResponseNotAllowed(["GET", "HEAD", "POST"])
        if not (may(request, found) and self.has_view_permission(request)):
            raise PermissionDenied
        target = self.get_object(request, str(key))
        if target is None or not self.has_view_permission(request, target):
            raise Http404
        form = found.form(request.POST if request.method == "POST" else None, target=target)
        if request.method == "POST" and form.is_valid():
            self._do(request, found, target, form)
            return HttpResponseRedirect(self._back(request, target))
        return self._ask(request, found, target, form)

    def _do(self, request: HttpRequest, act: Act, target: Target, form: ActForm) -> Result:
        deed = Deed(get_engine(), actor_of(request), target, form.cleaned_data)
        result = do(act, deed, request=request, admin=self)
        text = format_html("<strong>{}</strong>: {}", name_of(target), result.text)
        messages.add_message(request, LEVELS[result.outcome], text)
        return result

    def _ask(self, request: HttpRequest, act: Act, target: Target, form: ActForm) -> HttpResponse:
        hook = target if isinstance(target, Hook) else None
        context = {
            **self.admin_site.each_context(request),
            "opts": self.opts,
            "title": act.label,
            "subtitle": name_of(target),
            "media": self.media + form.media,
            "act": act,
            "form": form,
            "target": target,
            "facts": hook and facts_of(hook.metadata),
            "standing": standing(hook) if hook else "",
            "is_open": act.is_open_for(target),
            "action_url": act_url(act, target, site=self.admin_site),
            "back_url": self._back(request, target),
            "back": _came_from(request),
        }
        return TemplateResponse(request, "admin/flow_app/act.html", context)

    def _back(self, request: HttpRequest, target: Target) -> str:
        """The page that it was done from: the run's, or the inbox."""
        site = self.admin_site.name
        if isinstance(target, Hook) and not (_came_from(request) == RUN and request.user.has_perm("flow_app.view_run")):
            return reverse("admin:flow_app_hook_changelist", current_app=site)
        return reverse("admin:flow_app_run_change", args=[run_of(target).pk], current_app=site)


def _came_from(request: HttpRequest) -> str:
    return request.POST.get("back") or request.GET.get("back", "")


def name_of(target: Target) -> str:
    """How messages call it: the run's id, and the hook's."""
    run_id = run_of(target).run_id
    return f"{target.hook_id} ({run_id})" if isinstance(target, Hook) else run_id
