"""``@step``: a function whose side effects are recorded, at least once."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal

from flow_app.authoring import registry
from flow_app.core.context import StepContext
from flow_app.core.identifiers import check_id
from flow_app.core.policy import DEFAULT_RETRY, RetryPolicy
from flow_app.core.remote import StepOptions
from flow_app.errors import ConfigurationError, InvalidTransitionError

Body = Callable[..., Any]

_SHORTEST, _LONGEST = timedelta(milliseconds=1), timedelta(days=366)


@dataclass(eq=False)
class StepDefinition:
    """A registered step. Calling it calls the plain function, as a test of the body does."""

    step_name: str
    function: Body
    retry: RetryPolicy
    takes_context: bool
    takes_input: bool
    options: StepOptions

    def __post_init__(self) -> None:
        functools.update_wrapper(self, self.function)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(*args, **kwargs)

    def run(self, ctx: StepContext) -> Any:
        """Call the body with what its signature asks for: the context, the input, both or neither."""
        args: list[Any] = [ctx] if self.takes_context else []
        if self.takes_input:
            args.append(ctx.input)
        return self.function(*args)


def step(
    name: str,
    *,
    retry: RetryPolicy = DEFAULT_RETRY,
    timeout: timedelta | None = None,
    queue: str | None = None,
    dispatch: Literal["task"] | None = None,
    deliveries: int | None = None,
) -> Callable[[Body], StepDefinition]:
    """Register a step under a permanent name.

    The body takes the step's input, or a first parameter named ``ctx`` (a StepContext) and then the input. What it
    returns is the output; what it raises is a failed attempt. ``retry`` holds when a workflow states no policy.

    An attempt that takes longer than ``timeout`` has failed as "timed out", and what its body returns later is refused;
    the body itself may still run. With ``dispatch="task"`` every attempt travels as a message of its own, with
    ``queue`` to that queue, where the dispatcher can send it; else the step runs in the drive.

    ``deliveries`` is how often one attempt may be given to workers that die, instead of ``MAX_DELIVERIES``; then it
    has failed as "worker lost". With 1, and ``RetryPolicy.none()``, the body runs at most once.

    Raises ConfigurationError for a bad or taken name, a bad option, and a signature that cannot be called like this.
    """
    _check_name(name)
    _check_retry(name, retry)
    options = _options(name, timeout=timeout, queue=queue, dispatch=dispatch, deliveries=deliveries)

    def register(function: Body) -> StepDefinition:
        takes_context, takes_input = _signature(name, function)
        definition = StepDefinition(name, function, retry, takes_context, takes_input, options)
        registry.steps.add(name, definition, origin=registry.origin_of(function))
        return definition

    return register


def _check_name(name: object) -> None:
    if callable(name):
        raise ConfigurationError("Write @step('name') with a name: it is stored in every run's history.")
    try:
        check_id(name, what="step name")
    except InvalidTransitionError as error:
        raise ConfigurationError(str(error)) from None


def _check_retry(name: str, retry: object) -> None:
    if not isinstance(retry, RetryPolicy):
        raise ConfigurationError(f"Step {name!r}: retry must be a RetryPolicy, not {retry!r}.")
    try:
        retry.check_representable()
    except InvalidTransitionError as error:
        raise ConfigurationError(f"Step {name!r}: {error}") from None


def _options(name: str, *, timeout: Any, queue: Any, dispatch: Any, deliveries: Any) -> StepOptions:
    if timeout is not None and not (isinstance(timeout, timedelta) and _SHORTEST <= timeout <= _LONGEST):
        raise ConfigurationError(f"Step {name!r}: timeout must be a timedelta of 1 ms to 366 days, not {timeout!r}.")
    if queue is not None:
        if not isinstance(queue, str):
            raise ConfigurationError(f"Step {name!r}: queue must be the name of a queue, not {queue!r}.")
        try:
            check_id(queue, what="queue")
        except InvalidTransitionError as error:
            raise ConfigurationError(f"Step {name!r}: {error}") from None
    if dispatch not in (None, "task"):
        raise ConfigurationError(f'Step {name!r}: dispatch must be "task" or None, not {dispatch!r}.')
    if deliveries is not None and (type(deliveries) is not int or deliveries < 1):
        raise ConfigurationError(f"Step {name!r}: deliveries must be a whole number of at least 1, not {deliveries!r}.")
    travels = queue is not None or dispatch is not None
    return StepOptions(queue=queue, travels=travels, timeout=timeout, deliveries=deliveries)


def _signature(name: str, function: Body) -> tuple[bool, bool]:
    if inspect.iscoroutinefunction(function):
        raise ConfigurationError(f"Step {name!r} is an async function; wrap its body with asgiref's async_to_sync.")
    required = [
        parameter
        for parameter in inspect.signature(function).parameters.values()
        if parameter.default is parameter.empty
        and parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
    ]
    takes_context = bool(required) and required[0].name == "ctx"
    rest = required[1:] if takes_context else required
    if len(rest) > 1 or any(parameter.kind is parameter.KEYWORD_ONLY for parameter in required):
        raise ConfigurationError(f"Step {name!r} must take (input), (ctx), (ctx, input) or nothing.")
    return takes_context, bool(rest)
