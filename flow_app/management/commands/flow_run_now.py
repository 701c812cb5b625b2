"""``manage.py flow_run_now``: have runs looked at now."""

from __future__ import annotations

from flow_app.management.runs import RunsCommand


class Command(RunsCommand):
    help = "Have runs looked at now, blocked or waiting. Timers that are not due stay."
    verb = "run_now"
    done = "dispatched"
    nothing_to_do = "is being driven already"
