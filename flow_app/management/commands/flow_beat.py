"""``manage.py flow_beat``: put flow_app's beat entries into django-celery-beat's tables."""

from __future__ import annotations

from argparse import ArgumentParser
from collections.abc import Mapping
from importlib import import_module
from typing import Any

from django.apps import apps
from django.core.management.base import BaseCommand, CommandError
from django.utils.module_loading import import_string


class Command(BaseCommand):
    help = (
        "Create the periodic tasks of flow_app for django-celery-beat's DatabaseScheduler. "
        "Those that exist are left as they were edited."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "entries",
            nargs="?",
            help="Dotted path of the entries, as flow_app.beat makes them; default: the tick alone.",
        )
        parser.add_argument("--reset", action="store_true", help="Write over those that exist, too.")

    def handle(self, *args: Any, entries: str | None, reset: bool, **options: Any) -> None:
        if not apps.is_installed("django_celery_beat"):
            raise CommandError('django-celery-beat is not installed: INSTALLED_APPS = [..., "django_celery_beat"]')
        existing = import_module("django_celery_beat.models").PeriodicTask.objects.all()
        for name, entry in _entries(entries).items():
            if not reset and existing.filter(name=name).exists():
                self.stdout.write(f"{name}: left as it is")
            else:
                _write(name, entry)
                self.stdout.write(f"{name}: written")


def _entries(path: str | None) -> Mapping[str, Mapping[str, Any]]:
    if path is None:
        entries = import_module("flow_app.beat").schedule()
    else:
        try:
            entries = import_string(path)
        except ImportError as error:
            raise CommandError(f"{path!r} cannot be imported: {error}") from error
    if not isinstance(entries, Mapping):
        raise CommandError(f"{path!r} is no dict of beat entries: {entries!r}")
    return entries


def _write(name: str, entry: Mapping[str, Any]) -> None:
    """The scheduler's own way into its tables, which spells ``expires`` in another way than Celery does."""
    options = dict(entry.get("options", {}))
    options["expire_seconds"] = options.pop("expires", None)
    model_entry = import_module("django_celery_beat.schedulers").ModelEntry
    model_entry.from_entry(
        name, task=entry["task"], schedule=entry["schedule"], kwargs=entry.get("kwargs", {}), options=options
    )
