"""Have a run looked at now: what blocks it is tried again, a timer or a retry comes before its time."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django import forms
from django.utils import formats
from django.utils.translation import gettext, pgettext_lazy
from django.utils.translation import gettext_lazy as _

from flow_app import get_engine
from flow_app.admin.acts.act import Act, ActForm, Deed, run_of
from flow_app.admin.acts.pause import is_awake
from flow_app.core.snapshot import WaitStatus
from flow_app.errors import FlowError
from flow_app.presenting import here

LOOK = ""


class RunNowForm(ActForm):
    """``what`` is empty for a look, else ``wait:<id>`` or ``retry:<id>``: what comes before its time."""

    what = forms.ChoiceField(label=_("What"), required=False, widget=forms.RadioSelect)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        field = self.fields["what"]
        assert isinstance(field, forms.ChoiceField)
        field.choices = [(LOOK, gettext("Try to go on: timers keep their time")), *self._early()]
        field.initial = LOOK

    def _early(self) -> list[tuple[str, str]]:
        """The open timers and delayed retries of the one run."""
        if self.target is None:
            return []
        try:
            snapshot = get_engine().snapshot(run_of(self.target).run_id)
        except FlowError:  # a history that nobody can read may be what blocks the run
            return []
        if snapshot.status.is_terminal:
            return []
        waits = [
            (f"wait:{wait.wait_id}", _early_text(gettext("timer %(name)s, due %(when)s"), wait.wait_id, wait.resume_at))
            for wait in snapshot.waits.values()
            if wait.status is WaitStatus.WAITING
        ]
        retries = [
            (f"retry:{step.step_id}", _early_text(gettext("retry of %(name)s, due %(when)s"), step.step_id, at))
            for step in snapshot.steps.values()
            if (at := step.retry_after) is not None
        ]
        return [*waits, *retries]


def _early_text(text: str, name: str, when: datetime) -> str:
    return text % {"name": name, "when": formats.date_format(here(when), "DATETIME_FORMAT")}


def perform(deed: Deed) -> bool:
    kind, _colon, subject_id = deed.data.get("what", LOOK).partition(":")
    if kind == "wait":
        return deed.engine.resume_wait(deed.run_id, subject_id, actor=deed.actor)
    if kind == "retry":
        return deed.engine.retry_now(deed.run_id, subject_id, actor=deed.actor)
    return deed.engine.run_now(deed.run_id, actor=deed.actor)


RUN_NOW = Act(
    name="run-now",
    permission="operate_run",
    label=pgettext_lazy("act", "Run now"),
    question=_("The run is looked at now instead of later. What blocks it is tried again."),
    done=_("The run is on its way."),
    nothing=_("The run is being driven already, or what was to come early has come: nothing has changed."),
    is_open=is_awake,
    perform=perform,
    form=RunNowForm,
)
