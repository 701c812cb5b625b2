"""An act, done and recorded: the verb's events and the line in the admin log are one commit."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from enum import Enum
from typing import Any

from django.conf import settings
from django.contrib.admin import ModelAdmin
from django.contrib.admin.models import LogEntry
from django.db import router, transaction
from django.http import HttpRequest
from django.utils import translation

from flow_app import conf
from flow_app.admin.acts.act import Act, Deed, Text, run_of
from flow_app.admin.acts.refusals import explain
from flow_app.errors import FlowError
from flow_app.models import Hook


class Outcome(Enum):
    DONE = "done"
    NOTHING = "nothing"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class Result:
    """What came of an act, and how to say so. ``code`` is the error's, where it was refused."""

    outcome: Outcome
    text: Text
    code: str = ""


def do(act: Act, deed: Deed, *, request: HttpRequest, admin: ModelAdmin[Any]) -> Result:
    """Do it. The run is driven once all is committed, so whatever the drive meets does not undo the decision.

    A refusal is caught inside the transaction: what the engine wrote before it refused, a deadline that had passed,
    stays written.
    """
    refusal: FlowError | None = None
    done = False
    with one_commit():
        try:
            done = act.perform(deed)
        except FlowError as error:
            refusal = error
        if done:
            record(act.label, deed, request=request, admin=admin)
    if refusal is not None:
        return Result(Outcome.REFUSED, explain(refusal, deed.target), refusal.code)
    return Result(Outcome.DONE, act.done) if done else Result(Outcome.NOTHING, act.nothing)


@contextmanager
def one_commit() -> Iterator[None]:
    """A transaction on the runs' database, and on the admin log's where that is another."""
    with ExitStack() as stack:
        for alias in dict.fromkeys([conf.options().database, router.db_for_write(LogEntry)]):
            stack.enter_context(transaction.atomic(using=alias))
        yield


def record(label: Text, deed: Deed, *, request: HttpRequest, admin: ModelAdmin[Any]) -> None:
    """A line in the admin log, under the run, in the site's language. Payloads stay out of it."""
    with translation.override(settings.LANGUAGE_CODE):
        words = [str(label)]
        if isinstance(deed.target, Hook):
            words.append(deed.target.hook_id)
        words += [str(deed.data[name]) for name in ("reason", "what") if deed.data.get(name)]
        message = words[0] if len(words) == 1 else f"{words[0]}: {', '.join(words[1:])}"
        admin.log_change(request, run_of(deed.target), message)
