"""The acts that a user may do now, as a page shows them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from django.contrib.admin import AdminSite
from django.http import HttpRequest
from django.urls import NoReverseMatch, reverse

from flow_app.admin.acts.act import Act, Target, Text
from flow_app.admin.acts.catalogue import HOOK_ACTS, RUN_ACTS
from flow_app.core.snapshot import HookStatus
from flow_app.models import Hook, Run
from flow_app.presenting import HookFacts, facts_of

#: Hooks of one run that its page has buttons for.
MOST_HOOKS = 50


@dataclass(frozen=True, slots=True)
class Button:
    """``in_one_click``: it posts to ``url``; else it leads there, and is confirmed on that page."""

    label: Text
    url: str
    harmful: bool
    in_one_click: bool


@dataclass(frozen=True, slots=True)
class HookButtons:
    hook: Hook
    facts: HookFacts
    buttons: Sequence[Button]


@dataclass(frozen=True, slots=True)
class RunButtons:
    """All that a run's page offers: for the run, and for each of its open hooks. False when that is nothing."""

    run: Sequence[Button]
    hooks: Sequence[HookButtons]

    def __bool__(self) -> bool:
        return bool(self.run or self.hooks)


def run_buttons(request: HttpRequest, run: Run, *, site: AdminSite) -> RunButtons:
    """What this user may do to this run now. At most one query, for its open hooks."""
    hooks = _open_hooks(request, run, site=site) if run.active_hooks else []
    offered = [HookButtons(hook, facts_of(hook.metadata), hook_buttons(request, hook, site=site)) for hook in hooks]
    return RunButtons(_buttons(request, run, RUN_ACTS, site=site), [hook for hook in offered if hook.buttons])


def hook_buttons(request: HttpRequest, hook: Hook, *, site: AdminSite) -> list[Button]:
    return _buttons(request, hook, HOOK_ACTS, site=site)


def _open_hooks(request: HttpRequest, run: Run, *, site: AdminSite) -> list[Hook]:
    """Those that the admin of hooks lets this user see, if the user may decide at all."""
    if not (site.is_registered(Hook) and any(may(request, act) for act in HOOK_ACTS)):
        return []
    hook_admin = site.get_model_admin(Hook)
    if not hook_admin.has_view_permission(request):
        return []
    found = hook_admin.get_queryset(request).filter(run=run, status=HookStatus.ACTIVE.value).order_by("pk")
    return list(found[:MOST_HOOKS])


def may(request: HttpRequest, act: Act) -> bool:
    return request.user.has_perm(f"flow_app.{act.permission}")


def act_url(act: Act, target: Target, *, site: AdminSite) -> str:
    """Where the act is confirmed and done. Raises NoReverseMatch on a site without the target's admin."""
    name = f"admin:flow_app_{target._meta.model_name}_act"
    return reverse(name, args=[target.pk, act.name], current_app=site.name)


def _buttons(request: HttpRequest, target: Target, acts: Iterable[Act], *, site: AdminSite) -> list[Button]:
    allowed = [act for act in acts if may(request, act) and act.is_open_for(target)]
    try:
        return [Button(act.label, act_url(act, target, site=site), act.harmful, act.in_one_click) for act in allowed]
    except NoReverseMatch:  # hooks are not registered on this site
        return []
