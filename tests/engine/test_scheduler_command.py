from __future__ import annotations

import io
from datetime import timedelta

import pytest
from django.core.management import call_command

from flow_app import get_engine, workflow
from flow_app.models import Run


@pytest.mark.django_db(transaction=True)
def test_the_scheduler_process_brings_in_what_is_due() -> None:
    engine = get_engine()
    past = engine.store.clock.now() - timedelta(seconds=1)

    @workflow("nap")
    def nap(ctx):  # type: ignore[no-untyped-def]
        return ctx.complete("rested") if ctx.wait_completed("nap") else ctx.wait_until("nap", past)

    run_id = engine.start("nap")
    assert engine.snapshot(run_id).status == "suspended"
    out = io.StringIO()
    call_command("flow_scheduler", "--once", stdout=out)
    assert engine.snapshot(run_id).output == "rested"
    assert out.getvalue() == "1 dispatched, 0 without a route, 0 failed\n"
    assert not Run.objects.filter(wake_at__isnull=False).exists()
