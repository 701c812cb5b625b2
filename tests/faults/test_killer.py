"""Everything at once: the example's invoices while a random worker is killed every second."""

from __future__ import annotations

import random
import time
from typing import Any

import pytest

from flow_app import get_engine
from tests.cluster.cluster import Cluster
from tests.cluster.invoices import pay_invoices

EVERY = 1.0  # seconds
MOST = 30  # on a slow machine nobody would come to anything otherwise


class Killer:
    """Kills a random worker every second, and starts another."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._chance = random.Random(7)
        self._next = time.monotonic() + EVERY
        self.kills = 0

    def __call__(self) -> None:
        if time.monotonic() < self._next or self.kills == MOST:
            return
        self._next += EVERY
        victim = self._chance.choice(self._cluster.workers)
        victim.kill()
        self.kills += 1
        self._cluster.start_worker()


@pytest.mark.every_database
@pytest.mark.slow
def test_every_invoice_survives_a_killer(cluster: Cluster, settings: Any) -> None:
    cluster.flow |= {"MAX_DELIVERIES": 50}  # a step may be unlucky again and again
    cluster.sabotage["pause"] = 0.05
    settings.FLOW_APP = cluster.flow
    cluster.start(workers=3)
    killer = Killer(cluster)
    report = pay_invoices(cluster, meanwhile=killer)
    assert killer.kills >= 5
    assert report.outcomes.total() == 198
    for run_id in get_engine().list_run_ids():
        row = get_engine().row(run_id)
        assert (row.lease_expires_at, row.wake_at, row.blocked_code) == (None, None, "")
        history = get_engine().history(run_id)
        assert [item.sequence for item in history] == list(range(1, len(history) + 1))
        settled = [item.data["step_id"] for item in history if item.type in ("step_completed", "step_failed")]
        assert len(settled) == len(set(settled))
