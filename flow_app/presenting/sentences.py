"""A run in one sentence, and what would move it on in another. Plain text: whoever shows it escapes it."""

from __future__ import annotations

from datetime import datetime

from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from flow_app.core.payload import clean_text
from flow_app.core.ports import WakeReason
from flow_app.core.snapshot import OutcomeType, RunStatus
from flow_app.models import Run
from flow_app.presenting.badges import is_overdue
from flow_app.presenting.moments import lasting, when
from flow_app.presenting.waiting import Waiting

_LINE = 160


def headline(run: Run, waiting: Waiting | None, *, now: datetime) -> str:
    """What the run is doing, in one sentence. ``waiting`` comes from :func:`look` or :func:`glance`."""
    if RunStatus(run.status).is_terminal:
        return _ending(run, now=now)
    if run.paused_at is not None:
        return _paused(run.paused_at, run.paused_by, now=now)
    if run.blocked_code:
        return _blocked(run, now=now)
    if run.status == RunStatus.CANCELLING and waiting is None:
        return _("Is being cancelled: the workflow cleans up.")
    if waiting is not None:
        return _waits(waiting, now=now)
    return _moves(run, now=now)


def why(run: Run, waiting: Waiting | None, *, now: datetime) -> str:
    """What would move the run on; "" for one that has ended."""
    if RunStatus(run.status).is_terminal:
        return ""
    if run.paused_at is not None:
        return _("It goes on when somebody unpauses it; what arrives until then is kept.")
    if run.blocked_code:
        return _tried_again(run, now=now)
    if run.wake_reason == WakeReason.NO_WORKER:
        return _("It goes on when a worker for its build runs: %(build)s.") % {"build": run.build or _("no build")}
    if is_overdue(run, now=now):
        return _("It was due %(at)s and nobody has looked at it: is a scheduler running?") % {"at": _wake(run, now=now)}
    if waiting is not None:
        return _moved_by(waiting, now=now)
    if run.wake_at is not None:
        return _("If nothing happens, it is looked at again %(at)s.") % {"at": _wake(run, now=now)}
    return ""


def first_line(text: str) -> str:
    """The last line of a traceback, else the first line: what went wrong, short enough for a sentence."""
    lines = [line for line in text.strip().splitlines() if line.strip()] or [""]
    line = lines[-1] if lines[0].startswith("Traceback") else lines[0]
    return clean_text(line.strip(), limit=_LINE)


# --- endings --------------------------------------------------------------------------------------------------------


def _ending(run: Run, *, now: datetime) -> str:
    finished = run.finished_at or run.created_at
    values = {
        "at": when(finished, now=now),
        "length": lasting(finished - run.created_at),
        "error": first_line(run.error),
    }
    if run.status == RunStatus.COMPLETED:
        return _("Completed %(at)s, after %(length)s.") % values
    if run.status == RunStatus.CANCELLED:
        text = (
            _("Cancelled %(at)s, after %(length)s: %(error)s")
            if run.error
            else _("Cancelled %(at)s, after %(length)s.")
        )
        return text % values
    if run.outcome == OutcomeType.TIMED_OUT:
        return _("Timed out %(at)s, after %(length)s: %(error)s") % values
    if run.outcome == OutcomeType.RETRY_EXHAUSTED:
        return _("Failed %(at)s, after %(length)s, as a step has no attempt left: %(error)s") % values
    return _("Failed %(at)s, after %(length)s: %(error)s") % values


# --- open runs ------------------------------------------------------------------------------------------------------


def _paused(at: datetime, by: str, *, now: datetime) -> str:
    text = _("Paused since %(since)s, by %(who)s.") if by else _("Paused since %(since)s.")
    return text % {"since": when(at, now=now), "who": by}


def _blocked(run: Run, *, now: datetime) -> str:
    values = {
        "since": when(run.blocked_since or run.created_at, now=now),
        "code": run.blocked_code,
        "text": first_line(run.blocked_text),
    }
    return _("Blocked since %(since)s (%(code)s): %(text)s") % values


def _tried_again(run: Run, *, now: datetime) -> str:
    values = {"count": run.blocked_count, "at": _wake(run, now=now)}
    text = ngettext(
        "It was tried once; the next try is %(at)s, or at once when an event arrives.",
        "It was tried %(count)d times; the next try is %(at)s, or at once when an event arrives.",
        run.blocked_count,
    )
    return text % values


def _waits(waiting: Waiting, *, now: datetime) -> str:
    values = {
        "name": waiting.name,
        "since": "" if waiting.since is None else when(waiting.since, now=now),
        "until": "" if waiting.until is None else when(waiting.until, now=now),
        "attempt": waiting.attempt + 1,
        "error": first_line(waiting.error),
    }
    sentence = _SAY[waiting.kind](waiting) % values
    if waiting.others:
        more = ngettext("One more thing is open.", "%(count)d more things are open.", waiting.others)
        sentence = f"{sentence} {more % {'count': waiting.others}}"
    return sentence


def _say_hook(waiting: Waiting) -> str:
    if waiting.is_approval:
        return _pick(
            waiting,
            _("Waits for approval “%(name)s” since %(since)s, expires %(until)s."),
            _("Waits for approval “%(name)s” since %(since)s."),
            _("Waits for approval “%(name)s”, which expires %(until)s."),
            _("Waits for approval “%(name)s”."),
        )
    return _pick(
        waiting,
        _("Waits for hook “%(name)s” since %(since)s, expires %(until)s."),
        _("Waits for hook “%(name)s” since %(since)s."),
        _("Waits for hook “%(name)s”, which expires %(until)s."),
        _("Waits for hook “%(name)s”."),
    )


def _say_timer(waiting: Waiting) -> str:
    if not waiting.name:
        return _pick(
            waiting,
            _("Waits since %(since)s for a timer, until %(until)s."),
            _("Waits since %(since)s for a timer."),
            _("Waits for a timer, until %(until)s."),
            _("Waits for a timer."),
        )
    return _pick(
        waiting,
        _("Waits in “%(name)s” since %(since)s, until %(until)s."),
        _("Waits in “%(name)s” since %(since)s."),
        _("Waits in “%(name)s” until %(until)s."),
        _("Waits in “%(name)s”."),
    )


def _say_retry(waiting: Waiting) -> str:
    if not waiting.name:
        return _("Tries a step again %(until)s.") if waiting.until else _("Tries a step again.")
    if waiting.until is None:
        return _("Tries step “%(name)s” again, attempt %(attempt)d: %(error)s")
    return _("Tries step “%(name)s” again %(until)s, attempt %(attempt)d: %(error)s")


def _pick(waiting: Waiting, both: str, since: str, until: str, neither: str) -> str:
    """The sentence that says what is known."""
    if waiting.since is None:
        return neither if waiting.until is None else until
    return since if waiting.until is None else both


_SAY = {"hook": _say_hook, "timer": _say_timer, "retry": _say_retry}


def _moved_by(waiting: Waiting, *, now: datetime) -> str:
    until = None if waiting.until is None else when(waiting.until, now=now)
    if waiting.is_approval:
        if until is None:
            return _("A decision moves it on.")
        return _("A decision moves it on, or its deadline %(until)s.") % {"until": until}
    if waiting.kind == "hook":
        if until is None:
            return _("An answer to the hook moves it on.")
        return _("An answer to the hook moves it on, or its deadline %(until)s.") % {"until": until}
    if until is None:
        return ""
    return _("The scheduler moves it on %(until)s.") % {"until": until}


def _moves(run: Run, *, now: datetime) -> str:
    """A sentence for a run that waits for nothing: work is under way, or about to be."""
    if run.wake_reason == WakeReason.NO_WORKER:
        return _("No worker runs its build (%(build)s).") % {"build": run.build or _("none")}
    if run.wake_reason == WakeReason.LOST:
        text = ngettext("Its worker died.", "Its workers died, %(count)d in a row.", run.lost_leases)
        return text % {"count": run.lost_leases}
    if run.steps_out:
        text = ngettext("One step is with the workers.", "%(count)d steps are with the workers.", run.steps_out)
        return text % {"count": run.steps_out}
    if run.lease_expires_at is not None and run.lease_expires_at > now:
        return _("A worker is running it.")
    if run.wake_reason == WakeReason.DISPATCHED and run.dispatches > 1:
        text = ngettext(
            "Sent to the workers once; none has taken it yet.",
            "Sent to the workers %(count)d times; none has taken it yet.",
            run.dispatches,
        )
        return text % {"count": run.dispatches}
    return _("Waits for a worker.")


def _wake(run: Run, *, now: datetime) -> str:
    return "" if run.wake_at is None else when(run.wake_at, now=now)
