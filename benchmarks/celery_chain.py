"""Ten steps: a durable run against a Celery chain, and a batch against a chord, on the same worker in one sitting.

    celery_chain.py [--database postgres://...] [--broker redis://...] [--pool prefork] [--concurrency 2]
                    [--prefetch 4] [--rounds 5]

Both sides do nothing in their ten steps. Celery keeps results in Redis, as chains and chords need it; flow_app keeps
every step in the database, in one of the script's own that is dropped at the end. Both tell the waiting client through
Redis: Celery by its result, a run by a receiver of ``event_recorded``, which hears of its end once that is committed;
that its row says so too is checked after the clock has stopped. Rounds alternate, so that the machine's moods hit both
sides alike.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
os.environ.setdefault("DJANGO_SETTINGS_MODULE", "project.settings")
# Nothing of the engine is tuned for this: the settings of the example project in production, with a broker.
os.environ.setdefault("DEBUG", "0")
os.environ.setdefault("BROKER", "redis://127.0.0.1:6379/14")

import redis
from celery import chain, chord

from flow_app import step, workflow
from flow_app.signals import event_recorded
from project.celery import app

STEPS = 10

Wait = Callable[[], None]
Start = Callable[[], Wait]

ended: list[str] = []

app.conf.update(
    result_backend=os.environ["BROKER"],
    task_default_queue="flow-bench",
    task_ignore_result=False,
    beat_schedule={},
    result_expires=600,
)


bell = redis.Redis.from_url(os.environ["BROKER"], socket_timeout=None)


def ring(envelope: Any, **signal: object) -> None:
    """In the worker: tell the client that a run has ended."""
    if envelope.event.terminal:
        bell.rpush(f"flow-bench:{envelope.run_id}", 1)


event_recorded.connect(ring)


@app.task(name="bench.noop")
def noop(*args: object) -> int:
    return 1


@app.task(name="bench.collect")
def collect(results: list[int]) -> int:
    return len(results)


@step("bench.nothing")
def nothing() -> int:
    return 1


@workflow("bench.chain")
def ten_in_a_row(ctx):
    for index in range(STEPS):
        if not ctx.step_completed(f"s{index}"):
            return ctx.schedule_step(f"s{index}", nothing)
    return ctx.complete(STEPS)


@workflow("bench.batch")
def ten_at_once(ctx):
    ids = [f"s{index}" for index in range(STEPS)]
    if not all(ctx.step_completed(step_id) for step_id in ids):
        return ctx.schedule_steps([ctx.step(step_id, nothing) for step_id in ids])
    return ctx.complete(sum(ctx.step_output(step_id) for step_id in ids))


# --- the two sides ----------------------------------------------------------------------------------------------------


def celery_chain() -> Wait:
    result = chain(*[noop.si() for _ in range(STEPS)]).apply_async()
    return lambda: result.get(timeout=120)


def celery_chord() -> Wait:
    result = chord([noop.s() for _ in range(STEPS)])(collect.s())
    return lambda: result.get(timeout=120)


def flow_run(name: str) -> Start:
    from flow_app import get_engine

    engine = get_engine()

    def start() -> Wait:
        run_id = engine.start(name)

        def wait() -> None:
            assert bell.blpop([f"flow-bench:{run_id}"], timeout=120), engine.row(run_id)
            ended.append(run_id)

        return wait

    return start


def check() -> None:
    """Every run that rang has ended well."""
    from flow_app import get_engine

    assert {get_engine().row(run_id).status for run_id in ended} <= {"completed"}
    ended.clear()


def per_second(start: Start, *, count: int, in_flight: int) -> float:
    """Start ``count``, never more than ``in_flight`` at a time, and wait for the oldest."""
    began = time.perf_counter()
    open_ones: list[Wait] = []
    for _ in range(count):
        if len(open_ones) == in_flight:
            open_ones.pop(0)()
        open_ones.append(start())
    for wait in open_ones:
        wait()
    return count / (time.perf_counter() - began)


def compare(
    title: str, ours: Callable[[], Callable[[], None]], theirs: Callable[[], Callable[[], None]], **how: int
) -> None:
    rates: dict[str, list[float]] = {"flow_app": [], "celery": []}
    for _ in range(args.rounds):
        rates["celery"].append(per_second(theirs, **how))
        rates["flow_app"].append(per_second(ours, **how))
        check()
    ratios = [ours / theirs for ours, theirs in zip(rates["flow_app"], rates["celery"], strict=True)]
    figures = {
        "bench": title,
        "in_flight": how["in_flight"],
        **{f"{side}_per_s": round(statistics.median(found), 1) for side, found in rates.items()},
        "ratio": round(statistics.median(ratios), 2),
        "ratios": [round(ratio, 2) for ratio in ratios],
    }
    print("RESULT " + json.dumps(figures), flush=True)


# --- the sitting ------------------------------------------------------------------------------------------------------


def own_database(server: str) -> tuple[str, Wait]:
    """A new database on the server, and what drops it."""
    import psycopg

    name = f"flow_bench_{os.getpid()}"

    def on_server(statement: str) -> None:
        with psycopg.connect(server.replace("postgres://", "postgresql://"), autocommit=True) as connection:
            connection.execute(statement)

    on_server(f'CREATE DATABASE "{name}"')
    url = urlunsplit(urlsplit(server)._replace(path=f"/{name}"))
    return url, lambda: on_server(f'DROP DATABASE "{name}" WITH (FORCE)')


def start_worker() -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "celery", "--app", "benchmarks.celery_chain", "worker", "--queues=flow-bench"]
    options = [
        f"--pool={args.pool}",
        f"--concurrency={args.concurrency}",
        f"--prefetch-multiplier={args.prefetch}",
        "--loglevel=ERROR",
        "--without-gossip",
        "--without-mingle",
    ]
    return subprocess.Popen([*command, *options], cwd=ROOT, stdout=subprocess.DEVNULL, start_new_session=True)


def main() -> None:
    import django

    django.setup()
    from django.core.management import call_command

    call_command("migrate", verbosity=0)
    worker = start_worker()
    try:
        for start in (celery_chain, celery_chord, flow_run("bench.chain"), flow_run("bench.batch")):
            per_second(start, count=20, in_flight=5)  # everything is warm
        row, batch = flow_run("bench.chain"), flow_run("bench.batch")
        compare("chain", row, celery_chain, count=30, in_flight=1)
        compare("chain", row, celery_chain, count=180, in_flight=60)
        compare("chord", batch, celery_chord, count=30, in_flight=1)
        compare("chord", batch, celery_chord, count=120, in_flight=40)
    finally:
        worker.terminate()
        with suppress(subprocess.TimeoutExpired):
            worker.wait(20)
        app.control.purge()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--database", default="postgres://postgres@127.0.0.1:5432/postgres", help="the server")
    parser.add_argument("--broker", default=os.environ["BROKER"])
    parser.add_argument("--pool", default="prefork")
    parser.add_argument("--concurrency", type=int, default=4)
    parser.add_argument("--prefetch", type=int, default=4, help="as Celery has it; the example project has 1")
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    os.environ["BROKER"] = args.broker
    os.environ["DATABASE_URL"], drop = own_database(args.database)
    try:
        main()
    finally:
        drop()
