"""flow_app in the protocol of the peer benchmarks: one run of trivial steps after another, driven inline.

``PEERLIB_DIR`` names the folder with ``peerlib.py`` and its fellows. ``--mode prepared`` lets PostgreSQL prepare the
statements that come again; ``--mode full`` sets SQLite to synchronous=FULL.
"""

from __future__ import annotations

import logging
import os
import sys
from pathlib import Path

sys.path[:0] = [os.environ["PEERLIB_DIR"], str(Path(__file__).resolve().parents[1])]

import common
import peerlib

args = peerlib.args()
mode, args.mode = args.mode, ""
path = common.HOME + "/data/flow_app.sqlite3"
if args.db == "sqlite":
    common.rm_sqlite(path)
apps = ["django.contrib.contenttypes", "django.contrib.auth", "flow_app"]
common.django_setup(args.db, apps, path=path, sync="FULL" if mode == "full" else "NORMAL", LOGGING_CONFIG=None)
logging.disable(logging.CRITICAL)

from django.core.management import call_command
from django.db import connection

from flow_app import get_engine, step, workflow

if mode == "prepared":
    connection.settings_dict["OPTIONS"]["prepare_threshold"] = 5  # as in the project's DATABASES
call_command("migrate", verbosity=0)


@step("trivial")
def trivial(number: int) -> dict[str, object]:
    return {"i": number, "ok": True}


@workflow("peer")
def peer(ctx):
    steps = ctx.input["n"]
    for number in range(steps):
        if not ctx.step_completed(f"s{number}"):
            return ctx.schedule_step(f"s{number}", trivial, number)
    return ctx.complete({"n": steps})


engine = get_engine()
started: list[str] = []


def one(steps: int) -> None:
    started.append(engine.start(peer, {"n": steps}))  # returns when the run has ended, or raises


def check() -> None:
    """Every run has ended well; looked up after the clock has stopped."""
    assert {engine.store.row(run_id).status for run_id in started} == {"completed"}


if __name__ == "__main__":
    peerlib.run_peer(args, "flow_app" + (f":{mode}" if mode else ""), one, dbname="bench")
    check()
