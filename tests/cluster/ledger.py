"""What really happened: a file that every process appends to, which remembers what a killed one forgot."""

from __future__ import annotations

import os
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from flow_app.core.context import StepContext
from tests.cluster.given import given


@dataclass(frozen=True, slots=True)
class Entry:
    """``at`` is one clock for all processes of the machine; ``group`` is the worker's process group."""

    what: str
    run_id: str
    step_id: str
    attempt: int
    at: float
    process: int
    group: int
    build: str


class Ledger:
    def __init__(self, path: Path) -> None:
        self._path = path

    def note(self, what: str, ctx: StepContext) -> None:
        build = given().get("flow", {}).get("BUILD", {}).get("current", "-")
        fields = (what, ctx.run_id, ctx.step_id, ctx.attempt, time.monotonic(), os.getpid(), os.getpgrp(), build)
        line = " ".join(map(str, fields)) + "\n"
        file = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        try:
            os.write(file, line.encode())  # one short write at the end: lines of many processes do not mix
        finally:
            os.close(file)

    def entries(self, what: str | None = None, *, step_id: str | None = None) -> list[Entry]:
        if not self._path.exists():
            return []
        lines = (line.split() for line in self._path.read_text().splitlines())
        found = [
            Entry(kind, run_id, step, int(attempt), float(at), int(process), int(group), build)
            for kind, run_id, step, attempt, at, process, group, build in lines
        ]
        return [entry for entry in found if what in (None, entry.what) and step_id in (None, entry.step_id)]

    def bodies(self) -> Counter[tuple[str, str, int]]:
        """How often each attempt's body began."""
        return Counter((entry.run_id, entry.step_id, entry.attempt) for entry in self.entries("begin"))

    def overlaps(self) -> list[tuple[str, str]]:
        """Steps whose body ran twice at one time. A body that never ended is taken to have died with its process."""
        running: dict[tuple[str, str], set[tuple[int, float]]] = {}
        ended = {(entry.run_id, entry.step_id, entry.process) for entry in self.entries("end")}
        found = []
        for entry in self.entries():
            key = (entry.run_id, entry.step_id)
            if entry.what == "begin":
                if running.get(key):
                    found.append(key)
                if (*key, entry.process) in ended:
                    running.setdefault(key, set()).add((entry.process, entry.at))
            elif running.get(key):
                running[key].pop()
        return found
