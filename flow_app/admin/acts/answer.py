"""Answer a hook with any JSON, or withdraw it."""

from __future__ import annotations

from django.utils.translation import gettext_lazy as _

from flow_app.admin.acts.act import Act, ActForm, Deed
from flow_app.admin.acts.answering import answer_hook, hook_of
from flow_app.admin.acts.hook_facts import is_open
from flow_app.admin.acts.payload_field import PayloadField


class AnswerForm(ActForm):
    payload = PayloadField(
        label=_("Answer"), help_text=_("JSON, as the workflow expects it. An empty field answers with null.")
    )


def answer(deed: Deed) -> bool:
    return answer_hook(deed, deed.data["payload"])


def withdraw(deed: Deed) -> bool:
    return deed.engine.dispose_hook(deed.run_id, hook_of(deed).hook_id, actor=deed.actor)


ANSWER = Act(
    name="answer",
    permission="resume_hook",
    label=_("Answer"),
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
