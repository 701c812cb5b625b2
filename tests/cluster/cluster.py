"""A deployment for one test: worker and beat processes of its own on the session's database and a real broker."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from celery import Celery, current_app
from django.conf import settings
from django.db import connection

from flow_app.authoring.runtime import RegistryRuntime
from flow_app.conf import Options, read
from flow_app.dispatch import CeleryDispatcher
from flow_app.engine import FlowEngine
from flow_app.store import DjangoEventStore
from tests.cluster.given import NAME
from tests.cluster.ledger import Ledger
from tests.cluster.services import Broker

ROOT = Path(__file__).resolve().parents[2]
TICK = 0.5  # seconds
FLOW = {"DISPATCHER": "flow_app.dispatch.CeleryDispatcher", "LEASE": 2, "DISPATCH_GRACE": 2}
LONG = 60  # seconds: what no condition takes, however slow the machine


class Nursery:
    """See :mod:`tests.cluster.nursery`."""

    def __init__(self) -> None:
        environment = {**os.environ, "DJANGO_SETTINGS_MODULE": "tests.cluster.settings", "PYTHONPATH": str(ROOT)}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.cluster.nursery"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment, cwd=ROOT,
        )  # fmt: skip

    def bear(self, argv: list[str], *, env: dict[str, str], log: Path) -> int:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(json.dumps({"argv": argv, "env": env, "log": str(log)}), file=self._process.stdin, flush=True)
        return int(self._process.stdout.readline())

    def close(self) -> None:
        self._process.communicate(timeout=30)


@dataclass(frozen=True, slots=True)
class Member:
    """One worker or beat: the leader of a process group."""

    name: str
    pid: int
    log: Path

    @property
    def is_alive(self) -> bool:
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return False
        return True

    def kill(self) -> None:
        """SIGKILL, for it and its children."""
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)

    def terminate(self) -> None:
        """Ask for a warm shutdown."""
        with suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGTERM)

    def signal(self, number: signal.Signals) -> None:
        os.killpg(self.pid, number)


@dataclass
class Cluster:
    """What runs, and an engine of this process that dispatches to it."""

    nursery: Nursery
    broker: Broker
    folder: Path
    queue: str
    flow: dict[str, Any] = field(default_factory=lambda: dict(FLOW))
    sabotage: dict[str, Any] = field(default_factory=dict)
    members: list[Member] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.ledger = Ledger(self.folder / "ledger")
        self._app_before = current_app._get_current_object()
        self.app = Celery("here", set_as_current=True)
        self.app.conf.update(self.celery_settings())
        self.engine = self.engine_with(self.flow)

    def engine_with(self, flow: Mapping[str, Any]) -> FlowEngine:
        """An engine as a process with this FLOW_APP has it."""
        options = Options(**{key.lower(): read(key, value) for key, value in flow.items()})
        store = DjangoEventStore()
        secrets = (settings.SECRET_KEY,)
        engine = FlowEngine(store, RegistryRuntime(), options=options, builds=options.builds, secrets=secrets)
        engine.services.dispatcher = CeleryDispatcher(engine)
        return engine

    def celery_settings(self) -> dict[str, Any]:
        return {
            "broker_url": self.broker.url,
            "broker_connection_timeout": 2,
            "broker_connection_retry_on_startup": True,
            "task_default_queue": self.queue,
            "task_ignore_result": True,
            "db_reuse_max": 1000,
            "worker_prefetch_multiplier": 1,
            "worker_hijack_root_logger": True,
            "beat_schedule": {"tick": {"task": "flow_app.tick", "schedule": TICK, "options": {"expires": 5}}},
            "beat_max_loop_interval": TICK,
            **self.broker.settings,
        }

    def use_broker(self, url: str) -> None:
        """Where this process sends from now on; its workers keep theirs."""
        self.app.close()
        self.app = Celery("here", set_as_current=True)
        self.app.conf.update({**self.celery_settings(), "broker_url": url})

    # --- members ------------------------------------------------------------------------------------------------------

    def start_worker(
        self, *, pool: str = "threads", concurrency: int = 4, queues: str | None = None, **flow: Any
    ) -> Member:
        """Start a worker; keyword arguments in upper case change its FLOW_APP."""
        name = f"worker{len(self.members)}"
        argv = [
            "worker", "--loglevel=INFO", f"--pool={pool}", f"--concurrency={concurrency}",
            f"--hostname={name}@{self.queue}", f"--queues={queues or self.queue}",
            "--without-gossip", "--without-mingle", "--without-heartbeat",
        ]  # fmt: skip
        return self._start(name, argv, flow)

    def start_beat(self, **flow: Any) -> Member:
        name = f"beat{len(self.members)}"
        argv = ["beat", "--loglevel=INFO", "--scheduler=celery.beat:Scheduler", "--pidfile="]
        return self._start(name, argv, flow)

    def start(self, *, workers: int = 2, **worker: Any) -> None:
        """Some workers and a beat."""
        for _ in range(workers):
            self.start_worker(**worker)
        self.start_beat()

    def _start(self, name: str, argv: list[str], flow: dict[str, Any]) -> Member:
        handed = {
            "database": str(connection.settings_dict["NAME"]),
            "folder": str(self.folder),
            "celery": self.celery_settings(),
            "flow": {**self.flow, **flow},
            "sabotage": self.sabotage,
        }
        log = self.folder / f"{name}.log"
        pid = self.nursery.bear(argv, env={NAME: json.dumps(handed)}, log=log)
        member = Member(name, pid, log)
        self.members.append(member)
        return member

    @property
    def workers(self) -> list[Member]:
        return [member for member in self.members if member.name.startswith("worker") and member.is_alive]

    @property
    def beats(self) -> list[Member]:
        return [member for member in self.members if member.name.startswith("beat") and member.is_alive]

    def end(self, *members: Member) -> None:
        """Shut down warmly, and wait for it."""
        for member in members:
            member.terminate()
        self.wait_until(lambda: not any(member.is_alive for member in members), "warm shutdown")

    def close(self) -> None:
        for member in self.members:
            member.kill()
        self.wait_until(lambda: not any(member.is_alive for member in self.members), "their end")
        self.broker.close()
        self.app.close()
        self._app_before.set_current()

    # --- sabotage -----------------------------------------------------------------------------------------------------

    def die_at(self, *calls: str) -> None:
        """The first process that comes to such a call is killed there. Before any is started."""
        self.sabotage["die"] = list(calls)
        for call in calls:
            (self.folder / f"die-{call}").touch()

    def died_at(self, call: str) -> bool:
        return (self.folder / f"died-{call}").exists()

    def release(self, name: str) -> None:
        """Let go the steps that are held by this name."""
        (self.folder / name).touch()

    # --- watching -----------------------------------------------------------------------------------------------------

    def wait_until(self, is_so: Callable[[], bool], what: str = "it", *, seconds: float = LONG) -> None:
        give_up = time.monotonic() + seconds
        while not is_so():
            if time.monotonic() > give_up:
                raise AssertionError(f"{what} did not come in {seconds} s\n{self.report()}")
            time.sleep(0.05)

    def has_ended(self, *run_ids: str) -> bool:
        return all(self.engine.row(run_id).status.is_terminal for run_id in run_ids)

    def wait_for_end(self, *run_ids: str, seconds: float = LONG) -> None:
        left = list(run_ids)

        def ended() -> bool:
            left[:] = [run_id for run_id in left if not self.has_ended(run_id)]
            return not left

        self.wait_until(ended, f"the end of {run_ids[:3]}", seconds=seconds)

    def wait_for_body(self, step_id: str, *, times: int = 1) -> None:
        self.wait_until(lambda: len(self.ledger.entries("begin", step_id=step_id)) >= times, f"step {step_id}")

    def types(self, run_id: str) -> list[str]:
        return [item.type for item in self.engine.history(run_id)]

    def report(self) -> str:
        """For a failure: rows that are open, and the last lines of each log."""
        rows = [row for row in self.engine.store.rows() if not row.status.is_terminal]
        return "\n".join([*map(str, rows[:20]), *map(_tail, self.members)])


def _tail(member: Member, lines: int = 40) -> str:
    text = member.log.read_text(errors="replace") if member.log.exists() else "(no log)"
    return "\n".join([f"--- {member.name}, {'alive' if member.is_alive else 'dead'}", *text.splitlines()[-lines:]])
