"""A process of its own that starts a run, or carries on, and is killed in the middle of a step the first time.

Arguments: the database's name, the ledger file, and ``start`` or ``carry-on``.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import django
from django.db import connection


def main(database: str, ledger: Path, what: str) -> None:
    django.setup()
    connection.settings_dict["NAME"] = database

    from flow_app import step, workflow
    from flow_app.authoring.runtime import RegistryRuntime
    from flow_app.conf import Options
    from flow_app.core.context import StepContext
    from flow_app.dispatch import FlowScheduler, InlineDispatcher
    from flow_app.engine import FlowEngine
    from flow_app.store import DjangoEventStore

    def note(ctx: StepContext) -> int:
        with ledger.open("a") as file:
            file.write(f"{ctx.idempotency_key}/{ctx.attempt}\n")
            file.flush()
            os.fsync(file.fileno())
        return ledger.read_text().count(ctx.idempotency_key)

    @step("deadly")
    def deadly(ctx: StepContext) -> int:
        times = note(ctx)
        if times == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        return times

    @step("harmless")
    def harmless(ctx: StepContext) -> int:
        return note(ctx)

    @workflow("killed")
    def killed(ctx: Any) -> Any:
        for step_id, name in (("before", "harmless"), ("during", "deadly"), ("after", "harmless")):
            if not ctx.step_completed(step_id):
                return ctx.schedule_step(step_id, name)
        return ctx.complete(ctx.step_output("during"))

    options = Options(lease=timedelta(seconds=1), dispatch_grace=timedelta(seconds=1))
    engine = FlowEngine(DjangoEventStore(), RegistryRuntime(), options=options, secrets=("secret",))
    engine.services.dispatcher = InlineDispatcher(engine)
    if what == "start":
        engine.start("killed", run_id="killed")
        return
    give_up = time.monotonic() + 30
    while not engine.store.row("killed").status.is_terminal and time.monotonic() < give_up:
        FlowScheduler(engine).tick()
        time.sleep(0.05)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), sys.argv[3])
