"""What people do about the invoices they are asked about. A script, so that the demo knows how it must end."""

from __future__ import annotations

from datetime import timedelta
from enum import Enum

from project.invoices.gateway import dice


class Answer(Enum):
    APPROVE = "approves"
    REJECT = "says no"
    WITHDRAW = "asks to cancel the run"
    SILENCE = "never answers"


def answer_to(number: str) -> Answer:
    """What the approver does about an invoice, if asked; always the same."""
    points = dice(f"approver:{number}")
    if points < 55:
        return Answer.APPROVE
    if points < 75:
        return Answer.REJECT
    return Answer.WITHDRAW if points < 90 else Answer.SILENCE


def time_to_answer(number: str) -> timedelta:
    """Three days; but where nobody is going to answer, the demo does not wait that long."""
    return timedelta(seconds=1) if answer_to(number) is Answer.SILENCE else timedelta(days=3)
