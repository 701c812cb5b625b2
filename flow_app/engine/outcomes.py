"""One attempt of one step: how its body is called, and what came of it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import ClassVar

from django.db import connections

from flow_app.core import decider
from flow_app.core import events as ev
from flow_app.core.context import StepContext, hook_token
from flow_app.core.payload import Payload, clean_text
from flow_app.core.state import RunState
from flow_app.engine.services import Services
from flow_app.engine.tracebacks import traceback_of
from flow_app.errors import InvalidTransitionError

_MAX_ERROR = 4000
_LEFT_OPEN = (
    "the step left autocommit off on database {}, and what it wrote there is undone. Use transaction.atomic(), or "
    "commit and switch autocommit on again"
)

_logger = logging.getLogger("flow_app.steps")


@dataclass(frozen=True, slots=True)
class Outcome:
    """What an attempt came to: an output, or an error text and when it happened.

    ``traceback`` is for people: it is kept beside the error, and decides nothing.
    """

    step_id: str
    attempt: int
    output: Payload | None
    error: str
    at: datetime
    traceback: str = field(default="", compare=False, repr=False)

    def events(self, state: RunState) -> tuple[ev.Event, ...]:
        """The events that record it; none when nobody waits for this attempt any more."""
        step = state.steps.get(self.step_id)
        if state.is_terminal or step is None or not step.awaits_outcome_of(self.attempt):
            return ()
        if self.output is not None:
            return (ev.StepCompleted(self.step_id, self.output),)
        return decider.failure(state, self.step_id, error=self.error, failed_at=self.at)

    def __str__(self) -> str:
        return f"attempt {self.attempt} of step {self.step_id!r}"


@dataclass(frozen=True, slots=True)
class Due:
    """A timer or a hook's deadline that has passed."""

    event: decider.DueEvent
    traceback: ClassVar[str] = ""

    def events(self, state: RunState) -> tuple[ev.Event, ...]:
        """The event that records it; none when it is closed by now."""
        if isinstance(self.event, ev.WaitCompleted):
            is_open = self.event.wait_id in state.open_waits
        else:
            is_open = self.event.hook_id in state.active_hooks
        return (self.event,) if is_open else ()

    def __str__(self) -> str:
        return self.event.type


Fact = Outcome | Due  # what happened, whoever else writes


def error_text(error: BaseException) -> str:
    """Type and message of an exception, as every database takes it."""
    try:
        text = str(error)
    except Exception:
        text = "(an error that cannot say what it is)"
    return clean_text(f"{type(error).__name__}: {text}", limit=_MAX_ERROR)


def logger_for(run_id: str, step_id: str, attempt: int) -> logging.LoggerAdapter[logging.Logger]:
    """The logger of a body: each line says which attempt it comes from."""
    return logging.LoggerAdapter(_logger, {"run_id": run_id, "step_id": step_id, "attempt": attempt})


def step_context(services: Services, state: RunState, step_id: str, *, is_cancelled: Callable[[], bool]) -> StepContext:
    """What the body of a running step is called with."""
    step = state.steps[step_id]
    assert state.spec is not None
    tokens: dict[str, str] = {}

    def token_for(hook_id: str) -> str:
        if hook_id not in tokens:
            tokens[hook_id] = hook_token(state, hook_id, secrets=services.secrets)
        return tokens[hook_id]

    return StepContext(
        run_id=state.run_id,
        step_id=step_id,
        step_name=step.step_name,
        attempt=step.attempt,
        input_payload=step.input_payload,
        spec=state.spec,
        logger=logger_for(state.run_id, step_id, step.attempt),
        token_for=token_for,
        read_history=lambda: services.store.history(state.run_id),
        is_cancelled=is_cancelled,
    )


def close_left_open() -> list[str]:
    """Close this thread's connections on which a body left autocommit off: nothing more would be committed there.

    Returns their aliases.
    """
    left = [
        connection
        for connection in connections.all(initialized_only=True)
        if connection.connection is not None
        and not connection.in_atomic_block
        and not connection.autocommit
        and connection.settings_dict["AUTOCOMMIT"]
    ]
    for connection in left:
        connection.close()
    return [connection.alias for connection in left]


def run_body(services: Services, ctx: StepContext) -> Outcome:
    """Run a step's body. An exception, or a result that cannot be stored, is a failed attempt."""
    try:
        try:
            value = services.runtime.run_step(ctx)
        finally:
            left_open = close_left_open()
        if left_open:
            raise InvalidTransitionError(_LEFT_OPEN.format(", ".join(left_open)), run_id=ctx.run_id)
        output = Payload.of(value, what=f"output of step {ctx.step_id!r}", limits=services.options.limits)
    except Exception as error:
        # The message of the error may hold data: it is in the history, not in the log.
        ctx.logger.warning(
            "Run %s: attempt %s of step %s failed: %s", ctx.run_id, ctx.attempt, ctx.step_id, type(error).__name__
        )
        traceback = traceback_of(error) if services.options.tracebacks else ""
        return Outcome(ctx.step_id, ctx.attempt, None, error_text(error), services.store.clock.now(), traceback)
    return Outcome(ctx.step_id, ctx.attempt, output, "", services.store.clock.now())
