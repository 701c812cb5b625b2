"""Put a run to sleep, and let it go on."""

from __future__ import annotations

from django.utils.translation import gettext_lazy as _

from flow_app.admin.acts.act import Act, Deed
from flow_app.models import Run
from flow_app.models.run import OPEN


def pause(deed: Deed) -> bool:
    return deed.engine.pause(deed.run_id, actor=deed.actor)


def unpause(deed: Deed) -> bool:
    return deed.engine.unpause(deed.run_id, actor=deed.actor)


def is_awake(run: Run) -> bool:
    return run.status in OPEN and run.paused_at is None


def is_asleep(run: Run) -> bool:
    return run.status in OPEN and run.paused_at is not None


PAUSE = Act(
    name="pause",
    permission="operate_run",
    label=_("Pause"),
    question=_("The run sleeps until somebody lets it go on. Its timers keep their time and do not fire."),
    done=_("The run is paused."),
    nothing=_("The run was paused already: nothing has changed."),
    is_open=is_awake,
    perform=pause,
)

UNPAUSE = Act(
    name="unpause",
    permission="operate_run",
    label=_("Let it go on"),
    question=_("The run goes on, at once where something is due."),
    done=_("The run goes on."),
    nothing=_("The run was not paused: nothing has changed."),
    is_open=is_asleep,
    perform=unpause,
)
