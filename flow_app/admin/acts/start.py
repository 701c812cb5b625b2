"""Start a run by form: the workflow from the registry, its input as JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from uuid import uuid4

from django import forms
from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse, HttpResponseNotAllowed, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils.html import format_html
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from flow_app import conf, get_engine
from flow_app.admin.acts.act import actor_of
from flow_app.admin.acts.doing import one_commit
from flow_app.admin.acts.payload_field import PayloadField
from flow_app.admin.acts.refusals import explain_start
from flow_app.authoring import registry
from flow_app.errors import FlowError
from flow_app.models import Run

if TYPE_CHECKING:
    from django.contrib.admin import ModelAdmin

    Base = ModelAdmin[Run]
else:
    Base = object


class StartForm(forms.Form):
    """The run's id is made up when the form is shown: a second click on its button starts nothing new."""

    workflow = forms.ChoiceField(label=gettext_lazy("Workflow"))
    input = PayloadField(label=gettext_lazy("Input"), help_text=gettext_lazy("JSON. An empty field is null."))
    run_id = forms.CharField(
        label=gettext_lazy("Run id"),
        max_length=128,
        widget=forms.TextInput(attrs={"class": "vTextField"}),
        help_text=gettext_lazy("One id is one run. Keep this one, or give your own."),
    )
    subject = forms.CharField(
        label=gettext_lazy("Subject"),
        required=False,
        max_length=200,
        widget=forms.TextInput(attrs={"class": "vTextField"}),
        help_text=gettext_lazy("What the run is about, for instance “invoice:8821”. Runs can be found by it."),
    )
    labels = forms.CharField(
        label=gettext_lazy("Labels"),
        required=False,
        widget=forms.Textarea(attrs={"rows": 3, "class": "vLargeTextField"}),
        help_text=gettext_lazy("One a line, as name=value."),
    )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        workflow = self.fields["workflow"]
        assert isinstance(workflow, forms.ChoiceField)
        workflow.choices = [(name, _described(name)) for name in registry.workflows.names()]
        self.fields["run_id"].initial = lambda: uuid4().hex

    def clean_labels(self) -> dict[str, str]:
        labels: dict[str, str] = {}
        for line in filter(None, map(str.strip, self.cleaned_data["labels"].splitlines())):
            name, equals, value = line.partition("=")
            if not equals:
                raise forms.ValidationError(_("“%(line)s” is no label: write name=value."), params={"line": line})
            labels[name.strip()] = value.strip()
        return labels


class StartMixin(Base):
    """The page that starts a run, for the admin of runs."""

    def get_urls(self) -> list[URLPattern]:
        page = path("start/", self.admin_site.admin_view(self.start_view), name="flow_app_run_start")
        return [page, *super().get_urls()]

    def may_start(self, request: HttpRequest) -> bool:
        return request.user.has_perm("flow_app.start_run")

    def start_view(self, request: HttpRequest) -> HttpResponse:
        if request.method not in ("GET", "HEAD", "POST"):
            return HttpResponseNotAllowed(["GET", "HEAD", "POST"])
        if not self.may_start(request):
            raise PermissionDenied
        form = StartForm(request.POST) if request.method == "POST" else StartForm(initial=_asked(request))
        if request.method == "POST" and form.is_valid():
            try:
                run = self._start(request, form.cleaned_data)
            except FlowError as error:
                form.add_error(None, explain_start(error))
            else:
                return HttpResponseRedirect(self._after(request, run))
        context = {
            **self.admin_site.each_context(request),
            "opts": self.opts,
            "title": _("Start a run"),
            "media": self.media + form.media,
            "form": form,
            "back_url": self._page("changelist") if self.has_view_permission(request) else "",
        }
        return TemplateResponse(request, "admin/flow_app/start.html", context)

    def _start(self, request: HttpRequest, data: dict[str, Any]) -> Run:
        """Start it, or find it started in just this way. Raises FlowError."""
        with one_commit():
            started = get_engine().ensure_started(
                data["workflow"],
                data["input"],
                run_id=data["run_id"],
                subject=data["subject"],
                labels=data["labels"],
                actor=actor_of(request),
            )
            run = Run.objects.using(conf.options().database).with_id(started.run_id).get()
            if started.is_new:
                self.log_addition(request, run, data["workflow"])
        if started.is_new:
            messages.success(request, format_html(_("The run <strong>{}</strong> is started."), run.run_id))
        else:
            messages.info(request, format_html(_("The run <strong>{}</strong> was started before."), run.run_id))
        return run

    def _after(self, request: HttpRequest, run: Run) -> str:
        if self.has_view_permission(request, run):
            return self._page("change", run.pk)
        return self._page("start")

    def _page(self, name: str, *args: Any) -> str:
        return reverse(f"admin:flow_app_run_{name}", args=args, current_app=self.admin_site.name)


def _asked(request: HttpRequest) -> dict[str, str]:
    """A link may fill in the form: ``?workflow=invoice&subject=...``."""
    return {name: request.GET[name] for name in ("workflow", "subject", "input") if name in request.GET}


def _described(name: str) -> str:
    """The workflow's name, with the first line of what its function says of itself."""
    about = (registry.workflows.get(name).__doc__ or "").strip().partition("\n")[0]
    return f"{name}: {about}" if about else name
