"""Answer a hook with any JSON, or withdraw it."""

from __future__ import annotations

from typing import Any

from django.core.exceptions import ValidationError
from django.utils.translation import gettext_lazy as _
from django.utils.translation import pgettext_lazy

from flow_app.admin.acts.act import Act, ActForm, Deed
from flow_app.admin.acts.answering import answer_hook, check, hook_of
from flow_app.admin.acts.payload_field import PayloadField
from flow_app.admin.acts.refusals import problems_of
from flow_app.admin.acts.standing import is_open
from flow_app.errors import FlowError, HookPayloadError
from flow_app.models import Hook


class AnswerForm(ActForm):
    """What is wrong with the answer, or with what the hook declares of it, is said here, and the hook stays open."""

    payload = PayloadField(
        label=_("Answer"), help_text=_("JSON, as the workflow expects it. An empty field answers with null.")
    )

    def clean_payload(self) -> Any:
        payload = self.cleaned_data["payload"]
        if isinstance(self.target, Hook):
            try:
                check(self.target, payload)
            except HookPayloadError as error:
                raise ValidationError(problems_of(error)) from None
            except FlowError as error:  # it cannot be checked at all
                raise ValidationError(str(error)) from None
        return payload


def answer(deed: Deed) -> bool:
    return answer_hook(deed, deed.data["payload"])


def withdraw(deed: Deed) -> bool:
    return deed.engine.dispose_hook(deed.run_id, hook_of(deed).hook_id, actor=deed.actor)


ANSWER = Act(
    name="answer",
    permission="resume_hook",
    label=pgettext_lazy("act", "Answer"),
    question=_("The workflow goes on with this answer. It cannot be taken back."),
    done=_("The answer is recorded."),
    nothing=_("The same answer was recorded before: it stands."),
    is_open=is_open,
    perform=answer,
    form=AnswerForm,
)

WITHDRAW = Act(
    name="withdraw",
    permission="resume_hook",
    label=_("Withdraw"),
    question=_("The hook is closed without an answer, and the workflow decides what that means."),
    done=_("The hook is withdrawn."),
    nothing=_("The hook was withdrawn before: nothing has changed."),
    is_open=is_open,
    perform=withdraw,
    harmful=True,
)
