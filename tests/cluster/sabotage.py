"""Deaths at a chosen call inside a worker: the first process that comes there is killed with all its children."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.cluster.given import given


def prepare() -> None:
    """``sabotage`` is ``{"die": [call, ...], "pause": seconds}``; each call kills once, whichever process it is in."""
    plan = given()["sabotage"]
    for call in plan.get("die", ()):
        _calls()[call](call)
    if plan.get("pause"):
        _slow_steps(plan["pause"])


def die_once(call: str) -> None:
    """The one that gets the marker dies."""
    try:
        (Path(given()["folder"]) / f"die-{call}").rename(Path(given()["folder"]) / f"died-{call}")
    except FileNotFoundError:
        return
    os.killpg(os.getpgrp(), signal.SIGKILL)


def _before(owner: type, name: str) -> Callable[[str], None]:
    def install(call: str) -> None:
        original = getattr(owner, name)

        def deadly(self: Any, *args: Any, **kwargs: Any) -> Any:
            die_once(call)
            return original(self, *args, **kwargs)

        setattr(owner, name, deadly)

    return install


def _after(owner: type, name: str) -> Callable[[str], None]:
    def install(call: str) -> None:
        original = getattr(owner, name)

        def deadly(self: Any, *args: Any, **kwargs: Any) -> Any:
            result = original(self, *args, **kwargs)
            die_once(call)
            return result

        setattr(owner, name, deadly)

    return install


def _calls() -> dict[str, Callable[[str], None]]:
    from flow_app.dispatch import CeleryDispatcher, FlowScheduler
    from flow_app.store import DjangoEventStore

    return {
        "before-park": _before(DjangoEventStore, "park"),
        "after-park": _after(DjangoEventStore, "park"),
        "before-append": _before(DjangoEventStore, "append"),
        "after-append": _after(DjangoEventStore, "append"),
        "before-claim": _before(DjangoEventStore, "claim"),
        "after-claim": _after(DjangoEventStore, "claim"),
        "in-take-due": _after(DjangoEventStore, "take_due"),  # inside its transaction
        "before-take-step": _before(DjangoEventStore, "take_step"),
        "after-take-step": _after(DjangoEventStore, "take_step"),
        "before-claim-step": _before(DjangoEventStore, "claim_step"),
        "after-claim-step": _after(DjangoEventStore, "claim_step"),
        "before-complete-step": _before(DjangoEventStore, "complete_step"),
        "after-complete-step": _after(DjangoEventStore, "complete_step"),
        "before-close-step": _before(DjangoEventStore, "close_step"),  # in the outcome's transaction
        "before-hint": _before(CeleryDispatcher, "dispatch_for_build"),
        "before-step-hint": _before(CeleryDispatcher, "dispatch_step"),
        "in-take-due-steps": _after(DjangoEventStore, "take_due_steps"),
        "before-tick": _before(FlowScheduler, "tick"),
        "after-tick": _after(FlowScheduler, "tick"),
    }


def _slow_steps(seconds: float) -> None:
    from flow_app.authoring.runtime import RegistryRuntime

    original = RegistryRuntime.run_step

    def slow(self: RegistryRuntime, ctx: Any) -> object:
        time.sleep(seconds)
        return original(self, ctx)

    RegistryRuntime.run_step = slow  # type: ignore[method-assign]
