"""What the commands share that do one thing to the runs they are given."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any, ClassVar

from django.core.management.base import BaseCommand, CommandError

from flow_app import get_engine
from flow_app.errors import FlowError


class RunsCommand(BaseCommand):
    """Calls the engine's verb for each run, and goes on after one that it refuses. Exit status 1 if one was refused."""

    verb: ClassVar[str]
    done: ClassVar[str]
    nothing_to_do: ClassVar[str]

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("run_ids", nargs="+", metavar="run_id")
        parser.add_argument("--actor", help="Who does it: kept with a paused run, and told to the log.")
        parser.add_argument("--database", help="Database alias; default: FLOW_APP['DATABASE'].")

    def handle(self, *args: Any, run_ids: list[str], actor: str | None, database: str | None, **options: Any) -> None:
        act = getattr(get_engine(database), self.verb)
        refused = 0
        for run_id in run_ids:
            try:
                self.stdout.write(f"{run_id}: {self.done if act(run_id, actor=actor) else self.nothing_to_do}")
            except FlowError as error:
                self.stderr.write(f"{run_id}: {error}")
                refused += 1
        if refused:
            raise CommandError(f"{refused} of {len(run_ids)} runs refused.")
