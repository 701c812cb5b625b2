"""A body in a drive never runs under a claim that a crash of the database's server could undo."""

from __future__ import annotations

from typing import Any

import pytest

from flow_app import errors, step, workflow
from flow_app.models import Run
from flow_app.store import DjangoEventStore
from flow_app.testing import FakeClock
from tests.engine.conftest import inline_engine
from tests.engine.mailbox import Died

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def story(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A run whose step began under an earlier lease, which was given back; and what happens from then on."""
    engine = inline_engine(DjangoEventStore(clock=FakeClock()))
    happened: list[str] = []
    dies = [True]

    @step("s")
    def body() -> None:
        happened.append("body")
        if dies.pop() if dies else False:
            raise Died

    @workflow("w")
    def w(ctx: Any) -> Any:
        return ctx.complete() if ctx.step_completed("s") else ctx.schedule_step("s", body)

    with pytest.raises(Died):
        engine.start(w, run_id="r")
    Run.objects.update(lease_expires_at=None)
    happened.clear()
    for name in ("claim", "renew", "append"):
        call = getattr(engine.store, name)

        def note(*args: Any, name: str = name, call: Any = call, **how: Any) -> Any:
            happened.append(name)
            return call(*args, **how)

        monkeypatch.setattr(engine.store, name, note)
    return engine, happened


def test_an_attempt_that_runs_again_waits_for_its_claim(story):
    engine, happened = story
    engine.drive("r")
    assert happened == ["claim", "renew", "body", "append"]
    assert engine.snapshot("r").status == "completed"


def test_a_claim_that_is_gone_by_then_runs_nothing(story, monkeypatch):
    engine, happened = story
    monkeypatch.setattr(engine.store, "renew", lambda row, lease: False)
    with pytest.raises(errors.LeaseLostError):
        engine.drive("r")
    assert "body" not in happened


def test_an_attempt_that_is_started_now_is_written_first(story):
    engine, happened = story
    engine.drive("r")
    happened.clear()

    @workflow("other")
    def other(ctx: Any) -> Any:
        return ctx.complete() if ctx.step_completed("t") else ctx.schedule_step("t", "s")

    engine.services.dispatcher = None
    engine.start(other, run_id="o")
    happened.clear()
    engine.drive("o")
    assert happened == ["claim", "append", "body", "append"]
