"""The hook inbox: what waits for an answer, oldest first, for people who only approve."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any, ClassVar

from django.contrib import admin
from django.core.paginator import Paginator
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.template.loader import render_to_string
from django.urls import NoReverseMatch, reverse
from django.utils.functional import cached_property
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext_lazy as _

from flow_app.admin import inbox_search
from flow_app.admin.acts import ActsMixin, hook_buttons
from flow_app.admin.acts.catalogue import HOOK_ACTS
from flow_app.admin.acts.standing import standing
from flow_app.admin.looking import LookingAdmin
from flow_app.core.snapshot import HookStatus
from flow_app.models import Hook
from flow_app.models.run import OPEN
from flow_app.presenting import excerpt, facts_of, redact, when

_STATE = "state"


class FirstPages(Paginator):  # type: ignore[type-arg]
    """Counts no further than anybody pages: who looks for more searches for it."""

    MOST = 1000

    @cached_property
    def count(self) -> int:
        hooks: Any = self.object_list
        return len(hooks.order_by().values_list("pk", flat=True)[: self.MOST])


def shows_open(request: HttpRequest) -> bool:
    """Does the list show what waits, and nothing else?"""
    return not request.GET.get(_STATE)


class StateFilter(admin.SimpleListFilter):
    """Open hooks unless others are asked for."""

    title = _("state")
    parameter_name = _STATE

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, Any]]:
        return [("decided", _("Decided")), ("all", _("All"))]

    def choices(self, changelist: Any) -> Iterator[Any]:
        choices = list(super().choices(changelist))
        choices[0]["display"] = _("Open")
        yield from choices

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        match self.value():
            case "all":
                return queryset
            case "decided":
                return queryset.exclude(status=HookStatus.ACTIVE.value)
            case _:
                return queryset.filter(status=HookStatus.ACTIVE.value, run__status__in=OPEN)


class HookAdmin(ActsMixin, LookingAdmin):
    """Needs ``view_hook``, and ``resume_hook`` to decide. Who may not see runs sees no link to them.

    A project that shows each user some of the hooks overrides ``get_queryset``; the acts go by it. What the hook is
    about beyond its subject and labels needs ``view_payload``; :meth:`redact` takes secrets out of it.
    """

    acts = HOOK_ACTS
    actions = None
    list_display = ("subject", "labels", "hook_id", "since", "until", "state")
    list_display_links = ("hook_id",)
    list_filter = (StateFilter,)
    paginator = FirstPages
    sortable_by = ()
    search_fields = ("=run__run_id",)
    search_help_text = _("A subject, a label as name=value, or the id of a run")
    change_form_template = "admin/flow_app/hook/page.html"
    fields = ("state", "kind", "subject", "labels", "since", "until", "data", "answer")
    readonly_fields = fields
    redact = staticmethod(redact)

    class Media:
        css: ClassVar[Any] = {"all": ["flow_app/acts.css"]}

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        hooks: Any = super().get_queryset(request)
        return hooks.with_runs()  # type: ignore[no-any-return]

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Any], search_term: str
    ) -> tuple[QuerySet[Any], bool]:
        """See :func:`flow_app.admin.inbox_search.find`. A hook's own words are read of the few that are open, alone."""
        words = search_term.strip()
        if not words:
            return queryset, False
        sees_runs = request.user.has_perm("flow_app.view_run")
        return inbox_search.find(queryset, words, own=shows_open(request), sees_runs=sees_runs), False

    def lookup_allowed(self, lookup: str, value: Any, request: HttpRequest | None = None) -> bool:
        """Nobody guesses at payloads and digests by asking which hooks have them."""
        return lookup == _STATE

    def get_ordering(self, request: HttpRequest) -> list[Any]:
        """What waits longest comes first; of what is decided, the latest."""
        return ["pk"] if shows_open(request) else ["-pk"]

    def get_list_display(self, request: HttpRequest) -> list[Any]:
        """What depends on the user is a function of the request."""
        shown = [name for name in self.list_display if name != "state" or not shows_open(request)]
        return [*shown, self._run_column(request), self._acts_column(request)]

    def get_fields(self, request: HttpRequest, obj: Any = None) -> list[Any]:
        hidden = () if request.user.has_perm("flow_app.view_payload") else ("data", "answer")
        return [name for name in self.readonly_fields if name not in hidden]

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        return super().changelist_view(request, {"title": _("Hook inbox"), **(extra_context or {})})

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        hook = self.get_object(request, object_id)
        context: dict[str, Any] = {}
        if hook is not None and self.has_view_permission(request, hook):
            buttons = hook_buttons(request, hook, site=self.admin_site)
            context = {"buttons": buttons, "run_url": self._run_url(request, hook)}
        return super().change_view(request, object_id, form_url, {**context, **(extra_context or {})})

    # --- what a row and the page say ----------------------------------------------------------------------------------

    @admin.display(description=_("subject"))
    def subject(self, hook: Hook) -> str:
        return facts_of(hook.metadata).subject or hook.run.subject

    @admin.display(description=_("labels"))
    def labels(self, hook: Hook) -> str:
        facts = facts_of(hook.metadata)
        shown = [f"{name}={value}" for name, value in facts.labels.items()]
        return ", ".join([*shown, facts.more_labels] if facts.more_labels else shown)

    @admin.display(description=_("kind"))
    def kind(self, hook: Hook) -> str:
        return facts_of(hook.metadata).kind

    @admin.display(description=_("state"))
    def state(self, hook: Hook) -> str:
        return standing(hook)

    @admin.display(description=_("since"))
    def since(self, hook: Hook) -> str:
        return _when(hook.created_at)

    @admin.display(description=_("until"))
    def until(self, hook: Hook) -> str:
        return _when(hook.expires_at)

    @admin.display(description=_("data"))
    def data(self, hook: Hook) -> SafeString:
        return self._json(hook.metadata)

    @admin.display(description=_("answer"))
    def answer(self, hook: Hook) -> SafeString | str:
        return self.get_empty_value_display() if hook.received is None else self._json(hook.received)

    def _json(self, text: str) -> SafeString:
        return format_html('<pre class="flow-json">{}</pre>', excerpt(text, redact=self.redact).text)

    # --- what depends on who asks -------------------------------------------------------------------------------------

    def _run_column(self, request: HttpRequest) -> Callable[[Hook], SafeString]:
        @admin.display(description=_("run"))
        def run(hook: Hook) -> SafeString:
            url = self._run_url(request, hook)
            return format_html('<a href="{}">{}</a>' if url else "{1}", url, hook.run.run_id)

        return run

    def _acts_column(self, request: HttpRequest) -> Callable[[Hook], SafeString]:
        @admin.display(description=_("decide"))
        def decide(hook: Hook) -> SafeString:
            """One click where that is enough; the hook's page has the rest."""
            buttons = hook_buttons(request, hook, site=self.admin_site)
            at_once = [button for button in buttons if button.in_one_click]
            return render_to_string("admin/flow_app/hook/buttons.html", {"buttons": at_once or buttons, "hook": hook})

        return decide

    def _run_url(self, request: HttpRequest, hook: Hook) -> str:
        """The run's page; "" for who may not see runs, and on a site without them."""
        if not request.user.has_perm("flow_app.view_run"):
            return ""
        try:
            return reverse("admin:flow_app_run_change", args=[hook.run_id], current_app=self.admin_site.name)
        except NoReverseMatch:
            return ""


def _when(at: datetime | None) -> str:
    return "" if at is None else when(at, now=datetime.now(UTC))
