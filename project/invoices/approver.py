"""The scripted approver: answers the open approvals as systems and people outside would."""

from __future__ import annotations

from collections.abc import Collection

from django.core import mail

from flow_app import get_engine
from flow_app.types import HookRow
from project.invoices import mails
from project.invoices.script import Answer, answer_to


def answer_all(run_ids: Collection[str]) -> int:
    """Answer every open approval of these runs; returns how many were answered."""
    tokens = mails.approval_tokens(getattr(mail, "outbox", []))
    hooks = [hook for hook in get_engine().list_active_hooks() if hook.run_id in run_ids]
    return sum(answer(hook, tokens) for hook in hooks)


def answer(hook: HookRow, tokens: dict[str, str]) -> bool:
    """Answer one approval: by the token, where its mail was read, else by the hook's id, as an admin page does."""
    engine = get_engine()
    number = hook.metadata.value["subject"].removeprefix("invoice:")
    decision = answer_to(number)
    if decision is Answer.SILENCE:
        return False
    if decision is Answer.WITHDRAW:
        engine.request_cancellation(hook.run_id, reason="withdrawn by the vendor")
        return True
    payload = {"approved": decision is Answer.APPROVE, "by": mails.APPROVER}
    if number in tokens:
        engine.resume_hook_by_token(tokens[number], payload)
    else:
        engine.resume_hook(hook.run_id, hook.hook_id, payload)
    return True
