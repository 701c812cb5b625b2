"""How long the admin's pages take while a million runs with ten million events stand in PostgreSQL.

    admin.py [--url postgres://postgres@127.0.0.1:5432/postgres] [--runs 1000000] [--times 5] [--keep]

Needs no other script. It makes a database of its own beside the one that ``--url`` names, and drops it at the end
unless it is to be kept. Each page is asked for several times through Django's test client, as a superuser; shown are
the median, the number of queries and the slowest of them. Nine runs of ten have ended; one in twenty-five waits; one
has 5,000 events.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

parser = argparse.ArgumentParser()
parser.add_argument("--url", default="postgres://postgres@127.0.0.1:5432/postgres")
parser.add_argument("--runs", type=int, default=1_000_000)
parser.add_argument("--times", type=int, default=5)
parser.add_argument("--keep", action="store_true")
args = parser.parse_args()

os.environ["DATABASE_URL"] = args.url
os.environ["DJANGO_SETTINGS_MODULE"] = "project.settings"
os.environ["ALLOWED_HOSTS"] = "testserver"

import django

django.setup()

from datetime import timedelta
from urllib.parse import urlencode

from django.contrib.auth import get_user_model
from django.core.management import call_command
from django.db import connection, reset_queries
from django.test import Client
from django.utils import timezone

NAME = "flow_app_admin_benchmark"
PIECE = 100_000

RUNS = """
INSERT INTO flow_app_run (
    run_id, run_key, workflow, version, build, subject, labels, status, outcome, error, last_sequence, open_waits,
    active_hooks, pending_retries, timer_at, wake_at, wake_reason, dispatches, lease_epoch, lost_leases, steps_out,
    steps_awaited, paused_at, paused_by, blocked_code, blocked_text, blocked_traceback, blocked_since, blocked_count,
    progress_completed, progress_total, progress_message, created_at, finished_at)
SELECT name, encode(sha256(name::bytea), 'hex'), 'workflow-' || n %% 20, (n * 5 / %(runs)s + 1)::text,
    'build-' || n * 10 / %(runs)s, 'order:' || n %% 50000, '{}', status,
    CASE WHEN ended THEN status ELSE '' END, CASE status WHEN 'failed' THEN repeat('It broke. ', 100) ELSE '' END, 10,
    CASE WHEN timed THEN 1 ELSE 0 END, CASE WHEN hooked THEN 1 ELSE 0 END, 0, timer, CASE
        WHEN timed THEN timer WHEN late THEN now() - interval '1 hour'
        WHEN NOT ended AND NOT hooked THEN now() + interval '30 seconds' END,
    CASE WHEN ended THEN 'ended' WHEN timed THEN 'timer' WHEN hooked THEN 'hook' WHEN n %% 97 = 0 THEN 'no_worker'
        ELSE 'dispatched' END, 0, 1, 0, 0, '', CASE WHEN hooked AND n %% 5000 = 1 THEN now() END, '',
    CASE WHEN blocked THEN 'runtime' ELSE '' END, CASE WHEN blocked THEN repeat('Cannot. ', 200) ELSE '' END,
    CASE WHEN blocked THEN repeat('  File ', 2000) ELSE '' END, CASE WHEN blocked THEN now() END, 0, n %% 5, 5, '',
    born, CASE WHEN ended THEN born + interval '3 minutes' END
FROM (
    SELECT *, status IN ('completed', 'failed', 'cancelled') AS ended, status = 'suspended' AND n %% 2 = 0 AS timed,
        status = 'suspended' AND n %% 2 = 1 AS hooked, status = 'running' AND n %% 7 = 0 AS blocked,
        status IN ('running', 'pending') AND n %% 50 = 0 AS late,
        CASE WHEN status = 'suspended' AND n %% 2 = 0 THEN now() + n %% 1000 * interval '1 minute' END AS timer,
        now() - (%(runs)s - n) * interval '90 days' / %(runs)s AS born, 'run-' || lpad(n::text, 8, '0') AS name
    FROM (
        SELECT n, CASE WHEN n %% 100 IN (7, 57, 93) THEN 'failed' WHEN n %% 100 = 11 THEN 'cancelled'
            WHEN n %% 100 IN (1, 22, 43, 64) THEN 'suspended' WHEN n %% 100 IN (35, 50) THEN 'running'
            WHEN n %% 200 = 77 THEN 'pending' ELSE 'completed' END AS status
        FROM generate_series(%(first)s, %(last)s) AS n) AS numbered) AS told
"""
HOOKS = """
INSERT INTO flow_app_hook (
    run_id, hook_id, hook_key, token_digest, active_token_digest, metadata, kind, status, created_at, resolved_by)
SELECT id, 'approval', 'k', 'd' || id, 'd' || id, '{"kind":"human_approval"}', 'human_approval', 'active', created_at,
    ''
FROM flow_app_run WHERE active_hooks > 0
"""
LABELS = """
INSERT INTO flow_app_runlabel (run_id, name, name_key, value, label_key)
SELECT id, 'team', 'k', 't' || id %% 500,
    encode(sha256('team'::bytea || '\\x00'::bytea || ('t' || id %% 500)::bytea), 'hex')
FROM flow_app_run WHERE id %% 4 = 0
"""
EVENTS = """
INSERT INTO flow_app_event (run_id, sequence, event_id, type, payload, digest, meta, recorded_at)
SELECT id, n, gen_random_uuid(),
    CASE n WHEN 1 THEN 'run_created' WHEN 2 THEN 'run_started'
        ELSE (ARRAY['step_created', 'step_started', 'step_completed'])[n %% 3 + 1] END,
    CASE n WHEN 1 THEN '{"input":1,"spec":{}}' WHEN 2 THEN '{}' ELSE (ARRAY[
        '{"input":{},"retry":{},"step_id":"s' || n / 3 || '","step_name":"work"}',
        '{"attempt":1,"step_id":"s' || n / 3 || '"}',
        '{"output":"' || repeat('x', 100) || '","step_id":"s' || n / 3 || '"}'])[n %% 3 + 1] END,
    repeat('0', 64), '{}', created_at + n * interval '100 milliseconds'
FROM flow_app_run CROSS JOIN generate_series(%(from)s, %(to)s) AS n WHERE id BETWEEN %(first)s AND %(last)s
"""


def fill() -> None:
    call_command("migrate", verbosity=0)
    with connection.cursor() as cursor:
        cursor.execute("SET synchronous_commit = off")
        for first in range(1, args.runs + 1, PIECE):
            last = min(first + PIECE - 1, args.runs)
            cursor.execute(RUNS, {"runs": args.runs, "first": first, "last": last})
            cursor.execute(EVENTS, {"from": 1, "to": 10, "first": first, "last": last})
        cursor.execute(EVENTS, {"from": 11, "to": 5000, "first": args.runs, "last": args.runs})
        cursor.execute("UPDATE flow_app_run SET last_sequence = 5000 WHERE id = %s", [args.runs])
        cursor.execute(HOOKS, {})
        cursor.execute(LABELS, {})
        for table in ("run", "event", "hook", "runlabel"):
            cursor.execute(f"VACUUM ANALYZE flow_app_{table}")


def addresses() -> dict[str, str]:
    def days(many: int) -> str:
        return (timezone.now() - timedelta(days=many)).isoformat()

    middle, long_ago = args.runs // 2, {"created_at__gte": days(80), "created_at__lt": days(60)}
    asked: dict[str, dict[str, object]] = {
        "newest": {}, "the middle": {"before": middle}, "completed": {"status": "completed"},
        "waiting": {"status": "suspended"}, "open": {"status": "open"}, "cancelling (none)": {"status": "cancelling"},
        "blocked": {"attention": "blocked"}, "overdue": {"attention": "overdue"},
        "no worker": {"attention": "no_worker"}, "paused": {"attention": "paused"},
        "workflow": {"workflow": "workflow-7"}, "oldest version": {"version": "1"},
        "workflow, oldest version": {"workflow": "workflow-7", "version": "1"}, "oldest build": {"build": "build-0"},
        "unknown build": {"build": "none"}, "failed, oldest version": {"status": "failed", "version": "1"},
        "today": {"created_at__gte": days(1)}, "three weeks, long ago": long_ago,
        "ended long ago": {"finished_at__gte": days(80), "finished_at__lt": days(60)}, "prefix": {"q": "run-005"},
        "one id": {"q": f"run-{middle:08}"}, "unknown id": {"q": "none"}, "subject": {"subject": "order:5"},
        "label": {"label": "team=t4"},
    }  # fmt: skip
    home = "/admin/flow_app/run/"
    return {
        **{f"list: {name}": f"{home}?{urlencode(query)}" for name, query in asked.items()},
        "overview": f"{home}overview/",
        "hook inbox": "/admin/flow_app/hook/",
        "run of 10 events": f"{home}{middle}/change/",
        "run of 5,000 events": f"{home}{args.runs}/change/",
        "run of 5,000 events, first lanes": f"{home}{args.runs}/change/?lanes=1",
    }


def measure() -> None:
    client = Client()
    client.force_login(get_user_model().objects.create_superuser("benchmark"))
    print("| page | median | queries | slowest query | HTML |\n| --- | --- | --- | --- | --- |")
    for name, address in addresses().items():
        took: list[float] = []
        for _ in range(args.times):
            reset_queries()
            began = time.perf_counter()
            response = client.get(address)
            took.append(time.perf_counter() - began)
            assert response.status_code == 200, (address, response.status_code)
        slowest = max(float(query["time"]) for query in connection.queries)
        size = len(response.content) // 1024
        median = statistics.median(took) * 1000
        print(
            f"| {name} | {median:.0f} ms | {len(connection.queries)} | {slowest * 1000:.0f} ms | {size} kB |",
            flush=True,
        )


def main() -> None:
    with connection.cursor() as cursor:
        cursor.execute(f"DROP DATABASE IF EXISTS {NAME}")
        cursor.execute(f"CREATE DATABASE {NAME}")
    outside = connection.settings_dict["NAME"]
    connection.close()
    connection.settings_dict["NAME"] = NAME
    try:
        fill()
        measure()
    finally:
        connection.close()
        connection.settings_dict["NAME"] = outside
        if not args.keep:
            with connection.cursor() as cursor:
                cursor.execute(f"DROP DATABASE {NAME}")


main()
