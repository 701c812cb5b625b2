"""Answers from outside: which hook a token opens, and whether an answer looks as the hook declares."""

from flow_app.answering.schemas import check_answer
from flow_app.answering.tokens import hook_behind

__all__ = ["check_answer", "hook_behind"]
