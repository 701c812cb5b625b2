"""A run's standing as a word, a sign and a colour, so that nobody has to tell colours apart."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from django.utils.functional import Promise
from django.utils.translation import gettext_lazy as _
from django.utils.translation import pgettext_lazy

from flow_app.core.ports import WakeReason
from flow_app.core.snapshot import OutcomeType, RunStatus
from flow_app.models import Run

#: A run that nobody has looked at for this long, though it was due, is overdue.
OVERDUE_AFTER = timedelta(minutes=1)


@dataclass(frozen=True, slots=True)
class Badge:
    """``key`` is the stable code, ``word`` what people read, ``tone`` the colour's name, ``sign`` its twin in shape.

    Tones: idle, busy, wait, warn, good, bad, gone.
    """

    key: str
    word: str | Promise
    tone: str
    sign: str


_STATUS = {
    RunStatus.PENDING: Badge("pending", pgettext_lazy("run status", "pending"), "idle", "○"),
    RunStatus.RUNNING: Badge("running", pgettext_lazy("run status", "running"), "busy", "▶"),
    RunStatus.SUSPENDED: Badge("suspended", pgettext_lazy("run status", "waiting"), "wait", "◔"),
    RunStatus.CANCELLING: Badge("cancelling", pgettext_lazy("run status", "cancelling"), "warn", "◌"),
    RunStatus.COMPLETED: Badge("completed", pgettext_lazy("run status", "completed"), "good", "✓"),
    RunStatus.FAILED: Badge("failed", pgettext_lazy("run status", "failed"), "bad", "✗"),
    RunStatus.CANCELLED: Badge("cancelled", pgettext_lazy("run status", "cancelled"), "gone", "■"),
}

_OUTCOME = {
    OutcomeType.TIMED_OUT: Badge("timed_out", _("timed out"), "bad", "✗"),
    OutcomeType.RETRY_EXHAUSTED: Badge("retry_exhausted", _("no attempt left"), "bad", "✗"),
    OutcomeType.HOST_SHUTDOWN: Badge("host_shutdown", _("host shut down"), "bad", "✗"),
}

_PAUSED = Badge("paused", _("paused"), "warn", "‖")
_BLOCKED = Badge("blocked", _("blocked"), "bad", "!")
_OVERDUE = Badge("overdue", _("overdue"), "warn", "⚑")
_NO_WORKER = Badge("no_worker", _("no worker"), "warn", "⚑")
_LOST = Badge("lost", _("workers died"), "bad", "!")


def status_badge(status: str) -> Badge:
    """The badge of one of the seven statuses."""
    return _STATUS[RunStatus(status)]


def badges(run: Run, *, now: datetime) -> list[Badge]:
    """The run's status first, then whatever else people must know of it."""
    found = [status_badge(run.status)]
    if run.outcome in _OUTCOME:
        found.append(_OUTCOME[OutcomeType(run.outcome)])
    if not is_open(run):
        return found
    if run.paused_at is not None:
        found.append(_PAUSED)
    if run.blocked_code:
        found.append(_BLOCKED)
    if run.wake_reason == WakeReason.NO_WORKER:
        found.append(_NO_WORKER)
    elif run.wake_reason == WakeReason.LOST:
        found.append(_LOST)
    elif is_overdue(run, now=now):
        found.append(_OVERDUE)
    return found


def is_open(run: Run) -> bool:
    return not RunStatus(run.status).is_terminal


def is_overdue(run: Run, *, now: datetime) -> bool:
    """Due for longer than OVERDUE_AFTER, and nobody came: no scheduler is running, or it does not keep up."""
    return is_open(run) and run.wake_at is not None and run.wake_at <= now - OVERDUE_AFTER
