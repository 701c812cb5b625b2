"""Ask a run to stop; it may clean up first."""

from __future__ import annotations

from django import forms
from django.utils.translation import gettext_lazy as _

from flow_app.admin.acts.act import Act, ActForm, Deed
from flow_app.core.snapshot import RunStatus
from flow_app.models import Run
from flow_app.models.run import TERMINAL


class ReasonForm(ActForm):
    reason = forms.CharField(
        label=_("Reason"),
        required=False,
        max_length=1000,
        widget=forms.Textarea(attrs={"rows": 3, "class": "vLargeTextField"}),
        help_text=_("It is recorded with the run, for everybody who may see the run."),
    )


def perform(deed: Deed) -> bool:
    """The row is locked first, so that of two who ask at once one is told that it was asked before."""
    asked_before = deed.engine.store.lock(deed.run_id).status in (*TERMINAL, RunStatus.CANCELLING)
    deed.engine.request_cancellation(deed.run_id, deed.data["reason"] or None, actor=deed.actor)
    return not asked_before


def is_open(run: Run) -> bool:
    return run.status not in (*TERMINAL, RunStatus.CANCELLING.value)


CANCEL = Act(
    name="cancel",
    permission="cancel_run",
    label=_("Request cancellation"),
    question=_("The run is asked to stop. What it waits for is cancelled, and it may clean up before it ends."),
    done=_("Cancellation is requested."),
    nothing=_("Cancellation was requested before, or the run has ended: nothing has changed."),
    is_open=is_open,
    perform=perform,
    form=ReasonForm,
)
