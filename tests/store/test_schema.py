"""Migrations: reversible, and without drift under any setting. Columns: named, and blind to settings."""

from __future__ import annotations

import os
import subprocess
import sys
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest
from django.apps import apps
from django.conf import settings
from django.core.management import call_command
from django.db import connection, models
from django.db.migrations.loader import MigrationLoader
from django.db.models import Min
from django.db.utils import IntegrityError

from flow_app.models import Hook, Run, RunLabel
from flow_app.models.fields import UtcDateTimeField
from flow_app.models.keys import text_key
from flow_app.store import DjangoEventStore
from flow_app.testing.clock import FakeClock
from tests.store.support import LEASE, begin, step

NOW = datetime(2024, 1, 1, tzinfo=UTC)
MODELS = list(apps.get_app_config("flow_app").get_models())


@pytest.mark.django_db(transaction=True)
def test_migrations_go_back_to_nothing_and_up_again():
    def tables() -> set[str]:
        return {name for name in connection.introspection.table_names() if name.startswith("flow_app_")}

    before = tables()
    assert len(before) == len(MODELS)
    call_command("migrate", "flow_app", "zero", verbosity=0)
    try:
        assert tables() == set()
    finally:
        call_command("migrate", "flow_app", verbosity=0)
    assert tables() == before


@pytest.mark.django_db
def test_workers_of_the_first_version_insert_rows_until_the_last_of_them_has_ended():
    """They name the columns that they know: what came later has a default, or may be null."""
    first = MigrationLoader(connection).project_state([("flow_app", "0001_initial")]).apps
    run = {"run_id": "r1", "run_key": text_key("r1"), "status": "pending", "last_sequence": 1, "created_at": NOW}
    run = first.get_model("flow_app", "run").objects.create(**run)
    hook = {"hook_key": "k", "token_digest": "d", "metadata": "null", "status": "active"}
    hook = first.get_model("flow_app", "hook").objects.create(run=run, **hook)
    for model, known in ((Run, run), (Hook, hook)):
        row = model.objects.get(pk=known.pk)
        names = {field.name for field in model._meta.fields} - {field.name for field in known._meta.fields}
        later = {name: model._meta.get_field(name).get_default() for name in names}
        assert later
        assert {name: getattr(row, name) for name in later} == later


PROJECT = """
import django
from django.conf import settings
from django.core.management import call_command
settings.configure(INSTALLED_APPS=["django.contrib.contenttypes", "django.contrib.auth", "flow_app"], {options})
django.setup()
call_command("makemigrations", "flow_app", check_changes=True, dry_run=True)
"""
OPTIONS = [
    *[f"DEFAULT_AUTO_FIELD='django.db.models.{name}'" for name in ("AutoField", "BigAutoField", "SmallAutoField")],
    "USE_TZ=False, TIME_ZONE='Europe/Berlin', LANGUAGE_CODE='de'",
    "FLOW_APP={'DATABASE': 'other'}",
]


@pytest.mark.parametrize("options", OPTIONS)
def test_migrations_do_not_drift_under_other_settings(options):
    command = [sys.executable, "-c", PROJECT.format(options=options)]
    environment = {name: value for name, value in os.environ.items() if name != "DJANGO_SETTINGS_MODULE"}
    result = subprocess.run(command, env=environment, cwd=Path(settings.BASE_DIR), capture_output=True, text=True)
    assert result.returncode == 0, result.stdout + result.stderr


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.__name__)
def test_every_index_and_constraint_has_a_short_name_of_its_own(model):
    for item in (*model._meta.indexes, *model._meta.constraints):
        assert item.name.startswith("flow_")
        assert len(item.name) <= 30
    for field in model._meta.local_fields:
        assert field.primary_key or not (field.unique or field.db_index), f"{field} would name its index itself"


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.__name__)
def test_every_instant_is_kept_in_utc(model):
    plain = [field for field in model._meta.local_fields if isinstance(field, models.DateTimeField)]
    assert all(isinstance(field, UtcDateTimeField) for field in plain)


@pytest.mark.django_db
def test_the_database_refuses_an_unknown_status():
    begin(DjangoEventStore())
    with pytest.raises(IntegrityError):
        Run.objects.update(status="strange")


INSTANTS = [
    datetime(2024, 10, 27, 0, 30, 0, 1, UTC),  # 02:30 in Berlin, for the first time that night
    datetime(2024, 10, 27, 1, 30, tzinfo=UTC),  # and for the second
    datetime(2024, 3, 31, 4, 30, tzinfo=timezone(timedelta(hours=3))),
]


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("use_tz", [True, False])
def test_instants_are_utc_whatever_the_settings_say(settings, use_tz):
    """Also at the hour that a clock change repeats, which local time cannot tell apart."""
    settings.TIME_ZONE, settings.USE_TZ = "Europe/Berlin", use_tz
    connection.close()
    try:
        for number, at in enumerate(INSTANTS):
            check_instant(f"r{number}", at)
    finally:
        connection.close()


def check_instant(run_id: str, at: datetime) -> None:
    clock = FakeClock(at)
    store = DjangoEventStore(clock=clock)
    row = begin(store, run_id, step(), wake_at=at, timer_at=at)
    runs = Run.objects.with_id(run_id)
    utc = at.astimezone(UTC)
    assert (store.row(run_id), store.history(run_id)[-1].recorded_at) == (row, utc)
    values = [runs.get().wake_at, runs.values_list("wake_at", flat=True)[0], runs.aggregate(at=Min("wake_at"))["at"]]
    assert [(value, value.tzinfo) for value in values] == [(utc, UTC)] * 3
    assert runs.filter(wake_at=at).exists()
    assert runs.due(at).exists()
    assert not runs.due(at - timedelta(microseconds=1)).exists()
    claimed = store.claim(run_id, lease=LEASE)
    assert claimed.lease_expires_at == utc + LEASE
    runs.update(wake_at=at)
    run = runs.get()
    run.timer_at = at + LEASE
    run.save(update_fields=["timer_at"])
    assert (store.row(run_id).wake_at, store.row(run_id).timer_at) == (utc, utc + LEASE)
    assert {found.run_id for found in store.rows(timer_due=at + LEASE)} >= {run_id}
    runs.update(timer_at=None)


@pytest.mark.django_db
def test_runs_are_found_by_subject_and_label():
    store = DjangoEventStore()
    begin(store, "a", subject="invoice:1", labels={"team": "Red", "": ""})
    begin(store, "b", subject="invoice:2", labels={"team": "red"})
    begin(store, "c")
    assert [run.run_id for run in Run.objects.about("invoice:1")] == ["a"]
    assert [run.run_id for run in Run.objects.labelled("team", "red")] == ["b"]
    assert [row.run.run_id for row in RunLabel.objects.matching("team", "Red")] == ["a"]
    assert Run.objects.get(run_key=Run.objects.about("invoice:1")[0].run_key).labels == '{"":"","team":"Red"}'
    assert Run.objects.with_id("c").get().labels == "{}"
