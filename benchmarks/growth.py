"""What a long run costs: N sequential steps, by quarters; then a cold drive over all that is committed.

    growth.py [--db pg|sqlite] [--steps 5000] [--runs 3]

Needs ``PEERLIB_DIR`` as peer_flow_app.py does. The run's last step is left to a second, cold drive: its cost, without
the step, is that of claiming, loading and folding the history. It is compared with one SELECT of the same rows.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import logging
import os
import statistics
import sys
import time
from pathlib import Path

sys.path[:0] = [os.environ["PEERLIB_DIR"], str(Path(__file__).resolve().parents[1])]

import common

parser = argparse.ArgumentParser()
parser.add_argument("--db", default="pg")
parser.add_argument("--steps", type=int, default=5000)
parser.add_argument("--runs", type=int, default=3)
args = parser.parse_args()

path = common.HOME + "/data/flow_app_growth.sqlite3"
if args.db == "sqlite":
    common.rm_sqlite(path)
apps = ["django.contrib.contenttypes", "django.contrib.auth", "flow_app"]
slices = {"steps": 10**9, "seconds": 10**6}
common.django_setup(args.db, apps, path=path, LOGGING_CONFIG=None, FLOW_APP={"DRIVE_SLICE": slices})
logging.disable(logging.CRITICAL)


from django.core.management import call_command
from django.db import connection

from flow_app import get_engine, step, workflow

call_command("migrate", verbosity=0)

marks: list[float] = []
EVENTS = "SELECT sequence, type, payload, digest, recorded_at FROM flow_app_event WHERE run_id = %s ORDER BY sequence"


class Interrupted(BaseException):
    """The process is being stopped: what is committed stays, and the lease is let go."""


@step("marked")
def marked(number: int) -> dict[str, object]:
    marks.append(time.perf_counter())
    if number == args.steps:
        raise Interrupted
    return {"i": number, "ok": True}


@workflow("growth")
def growth(ctx):
    """The first step that is not completed, by halving: a workflow that counts from 0 is itself quadratic."""
    low, high = 0, ctx.input["n"] + 1
    while low < high:
        middle = (low + high) // 2
        low, high = (middle + 1, high) if ctx.step_completed(f"s{middle}") else (low, middle)
    if low <= ctx.input["n"]:
        return ctx.schedule_step(f"s{low}", marked, low)
    return ctx.complete({"n": low})


engine = get_engine()


def hot() -> tuple[str, list[float]]:
    """All steps but the last in one drive; microseconds for each step, by quarter."""
    marks.clear()
    run_id = f"growth-{time.time_ns()}"
    with contextlib.suppress(Interrupted):
        engine.start(growth, {"n": args.steps}, run_id=run_id)
    quarter = args.steps // 4
    return run_id, [(marks[(q + 1) * quarter] - marks[q * quarter]) / quarter * 1e6 for q in range(4)]


def cold(run_id: str) -> tuple[float, float]:
    """Milliseconds from the claim to the body of the last step; and those of one SELECT of the history."""
    key = engine.store.row(run_id).key
    selects = []
    for _ in range(3):
        began = time.perf_counter()
        with connection.cursor() as cursor:
            cursor.execute(EVENTS, [key])
            rows = cursor.fetchall()
        selects.append((time.perf_counter() - began) * 1e3)
    assert len(rows) == 3 * args.steps + 4
    marks.clear()
    began = time.perf_counter()
    with contextlib.suppress(Interrupted):
        engine.resume_scheduled_run(run_id)
    driven = (marks[0] - began) * 1e3
    engine.force_cancel(run_id)
    return driven, statistics.median(selects)


for _ in range(args.runs):
    common.quiet()
    run_id, quarters = hot()
    driven, select = cold(run_id)
    figures = {
        "bench": "growth",
        "db": args.db,
        "steps": args.steps,
        "us_per_step_by_quarter": [round(us) for us in quarters],
        "last_to_first": round(quarters[3] / quarters[0], 2),
        "cold_drive_ms": round(driven, 1),
        "select_ms": round(select, 1),
        "drive_to_select": round(driven / select, 2),
    }
    print("RESULT " + json.dumps(figures), flush=True)
