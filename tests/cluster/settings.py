"""Settings of the processes that a test starts: the session's database, the test's own queues, short leases."""

from __future__ import annotations

from project.settings_test import *  # noqa: F403
from project.settings_test import DATABASES
from tests.cluster.given import given

_given = given()
DATABASES["default"] |= {"NAME": _given["database"], "CONN_MAX_AGE": 60, "CONN_HEALTH_CHECKS": True}
FLOW_APP = _given["flow"]

globals().update({f"CELERY_{name.upper()}": value for name, value in _given["celery"].items()})
