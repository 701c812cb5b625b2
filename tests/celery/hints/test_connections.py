"""What a task does about connections that were kept."""

from __future__ import annotations

from contextlib import suppress
from types import SimpleNamespace

import pytest
from django.db import connection

from flow_app.dispatch import connections
from flow_app.errors import StoreError
from project.celery import app


@pytest.fixture
def look(engine, monkeypatch):
    """Run a task after so many seconds; was the connection taken for one that lives, without being asked?"""
    now = [1000.0]
    monkeypatch.setattr(connections, "time", SimpleNamespace(monotonic=lambda: now[0]))
    monkeypatch.setattr(connections, "_answered", connections._Answered())
    connection.ensure_connection()
    connection.health_check_done = False  # it is some minutes old

    def look(after: float = 0.0, *, fails: type[Exception] | None = None) -> bool:
        now[0] += after
        seen: list[bool] = []

        def drive(run_id: str) -> None:
            seen.append(connection.health_check_done)
            if fails is not None:
                raise fails("gone")

        monkeypatch.setattr(engine, "resume_scheduled_run", drive)
        connection.ensure_connection()
        with suppress(RuntimeError):
            app.tasks["flow_app.drive_run"]("r")
        return seen[0]

    return look


def test_one_that_served_the_task_before_is_not_asked_whether_it_lives(look):
    assert look() is False
    assert look() is True
    assert look(0.9) is True
    assert look(1.1) is False


@pytest.mark.parametrize("error", [RuntimeError, StoreError])
def test_after_a_task_that_failed_it_is_asked(look, error):
    assert look() is False
    assert look(fails=error) is True
    assert look() is False


def test_what_served_one_database_says_nothing_of_another(look, monkeypatch):
    assert look() is False
    connections._answered.at["other"] = connections._answered.at.pop("default")
    assert look() is False


def test_errors_are_looked_into_by_django(look):
    assert look() is False
    connection.errors_occurred = True
    assert look() is True  # it was asked just now
    assert connection.errors_occurred is False
