"""Why the engine refused, said so that the loser of a race knows which decision stands."""

from __future__ import annotations

from django.utils.translation import gettext as _

from flow_app import get_engine
from flow_app.admin.acts.act import Target, run_of
from flow_app.admin.acts.standing import standing
from flow_app.core.payload import clean_text
from flow_app.errors import (
    FlowError,
    HookConflictError,
    HookPayloadError,
    RunConflictError,
    RunNotFoundError,
    RunTerminalError,
    RuntimeBuildUnavailableError,
)
from flow_app.models import Hook
from flow_app.presenting import status_badge


def explain(error: FlowError, target: Target) -> str:
    """One or two sentences for the person who tried. Plain text: whoever shows it escapes it."""
    match error:
        case HookConflictError() if isinstance(target, Hook):
            target.refresh_from_db()
            return _("Nothing was changed, for it is decided already. %(standing)s") % {"standing": standing(target)}
        case RunTerminalError():
            run = run_of(target)
            run.refresh_from_db(fields=["status"])
            if isinstance(target, Hook):
                target.refresh_from_db()
            return _("Nothing was changed: the run has ended (%(status)s).") % {"status": status_badge(run.status).word}
        case RunConflictError():
            return _("Cancellation was requested before, for another reason: “%(reason)s”. It stands.") % {
                "reason": _recorded_reason(error.run_id)
            }
        case HookPayloadError():
            return _("Nothing was changed: the answer is not as the hook declares. %(problems)s") % {
                "problems": clean_text("; ".join(problems_of(error)), limit=1000)
            }
        case RuntimeBuildUnavailableError():
            required = error.required or _("no build")
            return _("Nothing was changed: no worker for its build (%(build)s) can be reached from here.") % {
                "build": required
            }
        case RunNotFoundError():
            return _("Nothing was changed: the run is gone.")
        case _:
            return _("Nothing was changed: %(reason)s") % {"reason": clean_text(str(error), limit=1000)}


def problems_of(error: HookPayloadError) -> list[str]:
    """What is wrong with an answer, each with where in it."""
    return [f"{where}: {what}" if where else what for where, what in error.problems]


def explain_start(error: FlowError) -> str:
    """The same for a run that was not started."""
    if isinstance(error, RunConflictError):
        return _("A run of this id exists, of another workflow or with another input.")
    return clean_text(str(error), limit=1000)


def _recorded_reason(run_id: str) -> str:
    cancellation = get_engine().snapshot(run_id).cancellation
    return "" if cancellation is None else clean_text(cancellation.request.reason or "", limit=1000)
