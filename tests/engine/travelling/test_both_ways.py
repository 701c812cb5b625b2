"""An output by the short way of PostgreSQL leaves what the long way leaves, however its run stands."""

from __future__ import annotations

from datetime import timedelta
from itertools import product
from typing import Any

import pytest
from django.db import connection

from flow_app import step, workflow
from flow_app.core.remote import Awaited
from flow_app.models import Run
from flow_app.store import DjangoEventStore
from flow_app.testing import FakeClock
from tests.engine.mailbox import Broker
from tests.engine.travelling.test_races import LongWay

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.skipif(connection.vendor != "postgresql", reason="only PostgreSQL has two ways"),
]

MINUTE = timedelta(minutes=1)


def outcome(stores: type[DjangoEventStore], run_id: str, members: int, **stands: Any) -> dict[str, Any]:
    """Complete the first of so many steps of a run that stands as told; how it stands then."""
    broker = Broker(store=stores(clock=FakeClock()))

    @step("job")
    def job() -> int:
        return 7

    @workflow("w")
    def w(ctx: Any) -> Any:
        return ctx.schedule_steps([ctx.step(f"s{index}", job) for index in range(max(members, 2))])

    broker.engine.start(w, run_id=run_id)
    broker.drive()
    if members == 1:
        broker.deliver("s1")
    now = broker.clock.now()
    Run.objects.with_id(run_id).update(
        **{name: now + value if isinstance(value, timedelta) else value for name, value in stands.items()}
    )
    settled = broker.deliver("s0")
    row = broker.store.row(run_id)
    kept = {name: getattr(row, name) for name in row.__slots__ if name not in ("key", "run_id", "lease_epoch")}
    events = [(item.sequence, item.type, item.data) for item in broker.engine.history(run_id)]
    return {"row": kept, "events": events, "settled": settled, "drives": len(broker.box.drives)}


@pytest.mark.parametrize("awaited", list(Awaited))
@pytest.mark.parametrize("members", [1, 2, 3])
@pytest.mark.parametrize("leased", [False, True], ids=["idle", "driven"])
@pytest.mark.parametrize("wake_at", [None, -MINUTE, MINUTE], ids=["no-wake-up", "earlier", "later"])
def test_an_output_both_ways(awaited, members, leased, wake_at):
    stands: dict[str, Any] = {"steps_awaited": awaited.value, "wake_at": wake_at, "wake_reason": "steps"}
    if leased:
        stands |= {"lease_expires_at": MINUTE, "wake_reason": "driving"}
    assert outcome(DjangoEventStore, "short", members, **stands) == outcome(LongWay, "long", members, **stands)


OTHERWISE: list[dict[str, Any]] = [
    {"blocked_code": "runtime", "blocked_text": "x", "blocked_count": 2, "wake_at": MINUTE, "wake_reason": "blocked"},
    {"status": "suspended", "active_hooks": 1},
    {"status": "cancelling"},
    {"lost_leases": 3, "dispatches": 2},
]


@pytest.mark.parametrize(("stands", "members"), list(product(OTHERWISE, [1, 2])))
def test_an_output_both_ways_whatever_else_is_so(stands, members):
    stands = {"steps_awaited": "any", **stands}
    assert outcome(DjangoEventStore, "short", members, **stands) == outcome(LongWay, "long", members, **stands)
