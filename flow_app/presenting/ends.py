"""What went into a run, and what came out."""

from __future__ import annotations

import json
from typing import Any

from flow_app.models import Event, Run

_ENDS = {"run_created": "input", "run_completed": "output"}


def ends_of(run: Run) -> dict[str, Any]:
    """The run's ``input`` and, if it has completed, its ``output``, as they are stored. One query."""
    events = Event.objects.using(run._state.db).filter(run=run.pk, sequence__in=(1, run.last_sequence), type__in=_ENDS)
    return {_ENDS[kind]: json.loads(text)[_ENDS[kind]] for kind, text in events.values_list("type", "payload")}
