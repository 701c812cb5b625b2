"""The traceback of an attempt that travelled comes back with its outcome."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from flow_app import RetryPolicy, step, workflow
from tests.engine.mailbox import Broker

pytestmark = pytest.mark.django_db(transaction=True)


def fails(retry: RetryPolicy, *, timeout: timedelta | None = None) -> None:
    """Workflow ``w``: one step, which travels, and fails."""

    @step("job", dispatch="task", retry=retry, timeout=timeout)
    def job() -> None:
        raise ValueError("no luck")

    @workflow("w")
    def w(ctx: Any) -> Any:
        return ctx.schedule_step("s", job)


def told(broker: Broker) -> list[tuple[str, str]]:
    """Type of event, and the last line of its traceback; of all events that have meta."""
    history = broker.engine.history("r")
    return [(item.type, item.meta["traceback"].splitlines()[-1]) for item in history if item.meta]


@pytest.mark.parametrize("timeout", [None, timedelta(minutes=1)], ids=["plain", "in a thread of its own"])
def test_at_once_again_and_then_the_end(broker: Broker, timeout: timedelta | None) -> None:
    fails(RetryPolicy.fixed(2), timeout=timeout)
    broker.engine.start("w", run_id="r")
    broker.drive()
    assert broker.deliver("s") == [True]
    assert broker.types()[-2:] == ["step_retrying", "step_started"]  # one append, and one of them has failed
    assert told(broker) == [("step_retrying", "ValueError: no luck")]
    assert broker.deliver("s") == [True]
    assert [kind for kind, _ in told(broker)] == ["step_retrying", "step_failed", "run_retry_exhausted"]
    text = broker.engine.history("r")[-1].meta["traceback"]
    assert text.count("  File ") == 1
    assert 'in job\n    raise ValueError("no luck")\n' in text


def test_with_a_delay(broker: Broker) -> None:
    fails(RetryPolicy.fixed(2, timedelta(minutes=1)))
    broker.engine.start("w", run_id="r")
    broker.drive()
    broker.deliver("s")
    assert told(broker) == [("step_retrying", "ValueError: no luck")]


def test_an_attempt_whose_time_is_over_has_none(broker: Broker) -> None:
    """It has failed of that, whatever its body raised."""

    @step("job", dispatch="task", retry=RetryPolicy.none(), timeout=timedelta(minutes=1))
    def job() -> None:
        broker.clock.advance(timedelta(minutes=2))
        raise ValueError("too late")

    @workflow("w")
    def w(ctx: Any) -> Any:
        return ctx.schedule_step("s", job)

    broker.engine.start("w", run_id="r")
    broker.drive()
    broker.deliver("s")
    assert broker.engine.snapshot("r").error == "timed out"
    assert told(broker) == []


def test_switched_off_none_comes_back() -> None:
    broker = Broker(tracebacks=False)
    fails(RetryPolicy.fixed(2))
    broker.engine.start("w", run_id="r")
    broker.drive()
    broker.deliver("s", "s")
    assert broker.types()[-1] == "run_retry_exhausted"
    assert told(broker) == []
