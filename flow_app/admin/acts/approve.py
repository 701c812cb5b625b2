"""Say yes or no to an approval: one click, and the first decision stands."""

from __future__ import annotations

from django.utils.translation import gettext_lazy as _

from flow_app.admin.acts import standing
from flow_app.admin.acts.act import Act, Deed
from flow_app.admin.acts.answering import answer_hook
from flow_app.models import Hook
from flow_app.presenting import facts_of


def approve(deed: Deed) -> bool:
    return _decide(deed, approved=True)


def reject(deed: Deed) -> bool:
    return _decide(deed, approved=False)


def _decide(deed: Deed, *, approved: bool) -> bool:
    """Who decided is part of the answer, so that the workflow can name them."""
    return answer_hook(deed, {"approved": approved, "by": deed.actor})


def is_open(hook: Hook) -> bool:
    return standing.is_open(hook) and facts_of(hook.metadata).is_approval


APPROVE = Act(
    name="approve",
    permission="resume_hook",
    label=_("Approve"),
    question=_("The answer is yes. It cannot be taken back."),
    done=_("Approved."),
    nothing=_("You approved it before: your answer stands."),
    is_open=is_open,
    perform=approve,
    in_one_click=True,
)

REJECT = Act(
    name="reject",
    permission="resume_hook",
    label=_("Reject"),
    question=_("The answer is no. It cannot be taken back."),
    done=_("Rejected."),
    nothing=_("You rejected it before: your answer stands."),
    is_open=is_open,
    perform=reject,
    in_one_click=True,
    harmful=True,
)
