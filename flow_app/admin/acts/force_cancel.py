"""End a run at once, without clean-up."""

from __future__ import annotations

from django.utils.translation import gettext_lazy as _

from flow_app.admin.acts.act import Act, Deed
from flow_app.admin.acts.cancel import ReasonForm
from flow_app.models import Run
from flow_app.models.run import OPEN


def perform(deed: Deed) -> bool:
    return deed.engine.force_cancel(deed.run_id, deed.data["reason"] or None, actor=deed.actor)


def is_open(run: Run) -> bool:
    return run.status in OPEN


FORCE_CANCEL = Act(
    name="force-cancel",
    permission="terminate_run",
    label=_("End at once"),
    question=_("The run ends as cancelled at once. It does not clean up: what it holds or has promised stays."),
    done=_("The run has been ended."),
    nothing=_("The run had ended already: nothing has changed."),
    is_open=is_open,
    perform=perform,
    form=ReasonForm,
    harmful=True,
)
