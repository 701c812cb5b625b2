"""``manage.py flow_pause``: put runs to sleep."""

from __future__ import annotations

from flow_app.management.runs import RunsCommand


class Command(RunsCommand):
    help = "Put open runs to sleep: they are not driven, timers keep their time and do not fire, what arrives is kept."
    verb = "pause"
    done = "paused"
    nothing_to_do = "was paused already"
