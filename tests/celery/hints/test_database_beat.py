"""flow_app's entries in django-celery-beat's tables, in a project of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("django_celery_beat")

ROOT = Path(__file__).parents[3]

SETTINGS = """
from celery import Celery
from flow_app import beat

SECRET_KEY = "x"
USE_TZ = True
INSTALLED_APPS = ["django.contrib.contenttypes", "django.contrib.auth", "flow_app", "django_celery_beat"]
DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": "site.sqlite3",
    "OPTIONS": {"timeout": 30, "transaction_mode": "IMMEDIATE",
        "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL;"}}}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
FLOW_APP = {"DISPATCHER": "flow_app.dispatch.CeleryDispatcher"}
DEBUG = True
CELERY_BROKER_URL = "memory://"
CELERY_BEAT_SCHEDULER = "django_celery_beat.schedulers:DatabaseScheduler"
ENTRIES = {**beat.schedule(), **beat.start("nightly", "report", "0 3 * * *", input={"days": 1}),
    **beat.start("often", "report", 300)}
app = Celery("site")
app.config_from_object("django.conf:settings", namespace="CELERY")
"""

SCRIPT = """
import io
import django
django.setup()
from django.core.management import call_command
from django_celery_beat.models import PeriodicTask
from site_settings import app

def run(*args, **kwargs):
    out = io.StringIO()
    call_command("flow_beat", *args, stdout=out, **kwargs)
    return out.getvalue().split("\\n")[:-1]

call_command("migrate", verbosity=0)
assert run() == ["flow_app.tick: written"]
assert run("site_settings.ENTRIES") == ["flow_app.tick: left as it is", "nightly: written", "often: written"]

tick = PeriodicTask.objects.get(name="flow_app.tick")
assert (tick.task, tick.expire_seconds, str(tick.interval)) == ("flow_app.tick", 60, "every 5 seconds"), vars(tick)
nightly = PeriodicTask.objects.get(name="nightly")
assert (nightly.task, nightly.crontab.hour, nightly.crontab.minute) == ("flow_app.start_run", "3", "0")

PeriodicTask.objects.filter(name="nightly").update(enabled=False)
PeriodicTask.objects.filter(name="flow_app.tick").update(expire_seconds=99)
run("site_settings.ENTRIES")
assert not PeriodicTask.objects.get(name="nightly").enabled, "an edit was lost"
assert PeriodicTask.objects.get(name="flow_app.tick").expire_seconds == 99, "an edit was lost"
assert run(reset=True) == ["flow_app.tick: written"]
assert PeriodicTask.objects.get(name="flow_app.tick").expire_seconds == 60

# The database scheduler reads the rows and sends what is due, with its expiry.
from django.utils import timezone
from django_celery_beat.schedulers import DatabaseScheduler
PeriodicTask.objects.update(last_run_at=timezone.now() - timezone.timedelta(hours=1))
scheduler = DatabaseScheduler(app=app)
for _ in range(4):
    scheduler.tick()
with app.connection_for_read() as connection, connection.SimpleQueue("celery") as letters:
    sent = [letters.get_nowait() for _ in range(letters.qsize())]
ours = {letter.headers["task"]: letter for letter in sent if letter.headers["task"].startswith("flow_app.")}
assert set(ours) == {"flow_app.tick", "flow_app.start_run"}, ours
assert ours["flow_app.tick"].headers["expires"]
args, kwargs, _ = ours["flow_app.start_run"].payload
assert (args, kwargs) == ([], {"name": "often", "workflow": "report", "input": None, "when": 300}), (args, kwargs)

from django.core.checks import run_checks
assert [message.id for message in run_checks()] == [], run_checks()
print("well")
"""


def test_the_entries_are_rows_that_people_may_edit_and_the_scheduler_sends(tmp_path):
    (tmp_path / "site_settings.py").write_text(SETTINGS)
    environment = {**os.environ, "DJANGO_SETTINGS_MODULE": "site_settings", "PYTHONPATH": f"{tmp_path}:{ROOT}"}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", SCRIPT], cwd=tmp_path, env=environment, capture_output=True, text=True
    )
    assert done.stdout == "well\n", done.stderr


def test_without_django_celery_beat_the_command_says_what_to_install():
    from django.core.management import CommandError, call_command

    with pytest.raises(CommandError, match="INSTALLED_APPS"):
        call_command("flow_beat")
