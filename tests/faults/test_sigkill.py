"""A worker that is really killed, in the middle of a step, on the database of this session."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from django.db import connection

from flow_app.store import DjangoEventStore

ROOT = Path(__file__).resolve().parents[2]


def live(ledger: Path, what: str) -> int:
    victim = Path(__file__).with_name("victim.py")
    environment = {**os.environ, "DJANGO_SETTINGS_MODULE": "project.settings_test", "PYTHONPATH": str(ROOT)}
    command = [sys.executable, str(victim), str(connection.settings_dict["NAME"]), str(ledger), what]
    return subprocess.run(command, env=environment, cwd=ROOT, timeout=60, check=False).returncode


@pytest.mark.django_db(transaction=True)
def test_a_killed_process_leaves_a_run_that_another_one_ends(tmp_path: Path) -> None:
    ledger = tmp_path / "ledger"
    assert live(ledger, "start") == -signal.SIGKILL
    store = DjangoEventStore()
    assert [item.type for item in store.history("killed")][-1] == "step_started"
    assert live(ledger, "carry-on") == 0
    assert ledger.read_text().split() == ["killed/before/1", "killed/during/1", "killed/during/1", "killed/after/1"]
    history = store.history("killed")
    steps = [(item.type, item.data["step_id"]) for item in history if item.type in ("step_started", "step_completed")]
    expected = [(kind, step) for step in ("before", "during", "after") for kind in ("step_started", "step_completed")]
    assert steps == expected
    assert [item.sequence for item in history] == list(range(1, len(history) + 1))
    assert (history[-1].type, history[-1].data["output"]) == ("run_completed", 2)
