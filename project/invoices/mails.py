"""The mails about an invoice."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import datetime
from typing import Any

from django.core.mail import EmailMessage, send_mail

SENDER = "invoices@example.com"
PAYABLES = "payables@example.com"
APPROVER = "approvals@example.com"

APPROVAL_PATH = "/approvals/{token}"
_NUMBER = re.compile(r"Invoice (\S+) needs your approval")
_LINK = re.compile(r"https://invoices\.example\.com/approvals/(\S+)")


def send_result(number: str, outcome: str, *, to: str, detail: str) -> None:
    body = f"Invoice {number}: {outcome}.\n\n{detail}\n"
    send_mail(f"Invoice {number}: {outcome}", body, SENDER, [to])


def ask_approval(facts: dict[str, Any], *, token: str, until: datetime) -> None:
    link = "https://invoices.example.com" + APPROVAL_PATH.format(token=token)
    body = (
        f"Vendor {facts['vendor']} asks for {facts['amount']} {facts['currency']} (order {facts['order']}).\n"
        f"Please answer until {until:%d %B %Y %H:%M} UTC:\n\n{link}\n"
    )
    send_mail(f"Invoice {facts['number']} needs your approval", body, SENDER, [APPROVER])


def approval_tokens(messages: Iterable[EmailMessage]) -> dict[str, str]:
    """The tokens in approval mails by invoice number, as the page behind the link would get them."""
    found = ((_NUMBER.search(str(message.subject)), _LINK.search(str(message.body))) for message in messages)
    return {number[1]: link[1] for number, link in found if number and link}
