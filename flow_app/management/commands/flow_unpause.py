"""``manage.py flow_unpause``: let paused runs go on."""

from __future__ import annotations

from flow_app.management.runs import RunsCommand


class Command(RunsCommand):
    help = "Let paused runs go on, at once where something is due."
    verb = "unpause"
    done = "goes on"
    nothing_to_do = "was not paused"
