"""Run by a test: everything a store does on one database leaves the other one alone."""

from __future__ import annotations

import os
import sys
from datetime import UTC, datetime
from pathlib import Path

import django
from django.conf import settings

sys.path.insert(0, os.getcwd())

from project.databases import SQLITE, SQLITE_OPTIONS

folder = Path(sys.argv[1])
settings.configure(
    INSTALLED_APPS=["django.contrib.contenttypes", "django.contrib.auth", "flow_app"],
    DATABASES={
        name: {"ENGINE": SQLITE, "NAME": folder / name, "OPTIONS": SQLITE_OPTIONS} for name in ("default", "elsewhere")
    },
    USE_TZ=True,
)
django.setup()


def main() -> None:
    from django.core.management import call_command
    from django.db import transaction

    from flow_app.core.events import HookReceived
    from flow_app.core.payload import Payload
    from flow_app.store import DjangoEventStore
    from flow_app.store.retention import RetentionStore
    from tests.store.support import DONE, LEASE, add, begin, done, hook, link, progress

    for alias in ("default", "elsewhere"):
        call_command("migrate", "flow_app", database=alias, verbosity=0)
    store, other = DjangoEventStore(), DjangoEventStore("elsewhere")
    with transaction.atomic(using="elsewhere"):
        assert other.in_caller_transaction()
        assert not store.in_caller_transaction()
    row = begin(other, "r1", hook(), progress("p"), link("self", "r1"), active_hooks=1, labels={"team": "a"})
    row = add(other, row, HookReceived("approval", Payload.of(1)), active_hooks=0)
    claimed = other.claim("r1", lease=LEASE)
    assert claimed is not None
    row = add(other, claimed, done(), epoch=claimed.lease_epoch, **DONE)
    assert (store.run_ids(), other.run_ids()) == ([], ["r1"])
    found = other.hook(row, "approval")
    assert found is not None
    assert found.received == Payload.of(1)
    assert other.progress(row, "p") is not None
    assert other.child_operation(row, "self") is not None
    with other.transaction():
        assert other.take_due(limit=9, grace=LEASE) == []
    retention = RetentionStore("elsewhere")
    retention.hold("r1", "h", reason="r")
    assert [(candidate.run_id, candidate.is_held) for candidate in retention.candidates()] == [("r1", True)]
    assert retention.release("h")
    assert retention.delete_runs(["r1"], now=datetime.now(UTC)) == ["r1"]
    assert other.run_ids() == []


main()
