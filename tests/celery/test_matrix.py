"""The example's invoices with worker processes, over each broker, on the database of this session."""

from __future__ import annotations

from typing import Any

import pytest

from tests.cluster.cluster import Cluster
from tests.cluster.fixtures import both_brokers
from tests.cluster.invoices import pay_invoices


@pytest.fixture(autouse=True)
def carried_by_celery(settings: Any, cluster: Cluster) -> None:
    settings.FLOW_APP = cluster.flow


@pytest.mark.every_database
@both_brokers
@pytest.mark.slow
def test_the_invoices_with_real_workers(cluster: Cluster) -> None:
    cluster.start(workers=2, pool="prefork", concurrency=2)
    report = pay_invoices(cluster)
    assert report.outcomes.total() == 198
    assert report.charges == 157
