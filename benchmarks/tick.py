"""What a tick costs on PostgreSQL while a million runs wait and a hundred are due.

    tick.py [--url postgres://postgres@127.0.0.1:5432/postgres] [--open 1000000] [--due 100] [--ticks 50] [--prepared]

Needs no other script. It makes a database of its own beside the one that ``--url`` names, and drops it at the end. A
tick is what ``flow_app.tick`` does: take what is due, in one transaction, and hand each run to the dispatcher, which
here does nothing. Another hundred runs, spread over the table, are made due before each tick; that is not timed. For
comparison, in turns: one bare statement that moves as many due rows on, without telling anybody which.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

parser = argparse.ArgumentParser()
parser.add_argument("--url", default="postgres://postgres@127.0.0.1:5432/postgres")
parser.add_argument("--open", type=int, default=1_000_000)
parser.add_argument("--steps", type=int, default=100_000)
parser.add_argument("--due", type=int, default=100)
parser.add_argument("--ticks", type=int, default=50)
parser.add_argument("--prepared", action="store_true", help='with OPTIONS = {"prepare_threshold": 5}')
args = parser.parse_args()

os.environ["DATABASE_URL"] = args.url
os.environ["DJANGO_SETTINGS_MODULE"] = "project.settings"

import django

django.setup()

from django.core.management import call_command
from django.db import connection

from flow_app import get_engine
from flow_app.dispatch import FlowScheduler

FILL_RUNS = """
INSERT INTO flow_app_run (
    run_id, run_key, workflow, version, subject, labels, status, outcome, error, last_sequence, open_waits,
    active_hooks, pending_retries, timer_at, wake_at, wake_reason, dispatches, lease_epoch, lost_leases, blocked_code,
    blocked_text, blocked_traceback, blocked_count, progress_message, created_at, steps_out, steps_awaited, paused_by)
SELECT 'run-' || n, encode(sha256(('run-' || n)::bytea), 'hex'), 'reminder', '1', 'order:' || n, '{}', 'suspended', '',
    '', 3, 1, 0, 0, at, at, 'timer', 0, 1, 0, '', '', '', 0, '', now(), 0, '', ''
FROM (SELECT n, now() + interval '1 hour' + n * interval '1 second' AS at FROM generate_series(1, %s) AS n) AS waits
"""
FILL_STEPS = """
INSERT INTO flow_app_stepexecution (
    run_id, step_id, step_key, attempt, step_name, input, retry, spec, fencing_token, worker, deliveries, late,
    dispatches, wake_at)
SELECT id, 's', encode(sha256('s'), 'hex'), 1, 's', 'null', '{}', '{}', '', '', 0, false, 0, wake_at
FROM flow_app_run ORDER BY id LIMIT %s
"""


MAKE_DUE = """
UPDATE flow_app_run SET wake_at = now() - interval '1 second', wake_reason = 'timer' WHERE id = ANY(%s)
"""
BARE = """
UPDATE flow_app_run SET wake_at = now() + interval '30 seconds', wake_reason = 'dispatched', dispatches = dispatches + 1
WHERE id IN (SELECT id FROM flow_app_run WHERE wake_at <= now() ORDER BY wake_at, id LIMIT %s FOR UPDATE SKIP LOCKED)
"""


class Nowhere:
    """Dispatches nothing; counts."""

    def __init__(self) -> None:
        self.sent = 0

    def has_route(self, build: str | None) -> bool:
        return True

    def dispatch(self, task: object) -> None:
        self.sent += 1

    def dispatch_for_build(self, build: str | None, task: object) -> None:
        self.sent += 1


def execute(sql: str, *params: object) -> None:
    with connection.cursor() as cursor:
        cursor.execute(sql, params)


def fill() -> None:
    call_command("migrate", verbosity=0)
    execute(FILL_RUNS, args.open)
    execute(FILL_STEPS, args.steps)
    execute("VACUUM ANALYZE flow_app_run")
    execute("VACUUM ANALYZE flow_app_stepexecution")
    execute("CHECKPOINT")  # what filling the tables left to be written is not the tick's to wait for


def make_due() -> None:
    keys = random.sample(range(1, args.open + 1), args.due)
    execute(MAKE_DUE, keys)


def timed(act: Callable[[], object]) -> float:
    """Milliseconds, once a hundred runs are due."""
    make_due()
    began = time.perf_counter()
    act()
    return (time.perf_counter() - began) * 1e3


def measure() -> tuple[list[float], list[float]]:
    nowhere = Nowhere()
    scheduler = FlowScheduler(get_engine(), nowhere)
    times = [(timed(scheduler.tick), timed(lambda: execute(BARE, args.due))) for _ in range(args.ticks)]
    assert nowhere.sent == args.ticks * args.due
    return [tick for tick, _ in times], [bare for _, bare in times]


def idle() -> float:
    """Milliseconds of a tick that finds nothing."""
    scheduler = FlowScheduler(get_engine(), Nowhere())
    began = time.perf_counter()
    for _ in range(100):
        assert not scheduler.tick().has_due_work
    return (time.perf_counter() - began) * 10


name = f"flow_tick_{os.getpid()}"
execute(f"CREATE DATABASE {name}")
connection.close()
maintenance, connection.settings_dict["NAME"] = connection.settings_dict["NAME"], name
if args.prepared:
    connection.settings_dict["OPTIONS"]["prepare_threshold"] = 5
try:
    fill()
    times, bare = measure()
    figures = {
        "bench": "tick",
        "open": args.open,
        "due": args.due,
        "ticks": args.ticks,
        "median_ms": round(statistics.median(times), 2),
        "p90_ms": round(statistics.quantiles(times, n=10)[-1], 2),
        "best_ms": round(min(times), 2),
        "worst_ms": round(max(times), 2),
        "bare_median_ms": round(statistics.median(bare), 2),
        "nothing_due_ms": round(idle(), 2),
    }
    print("RESULT " + json.dumps(figures), flush=True)
finally:
    connection.close()
    connection.settings_dict["NAME"] = maintenance
    execute(f"DROP DATABASE {name}")
