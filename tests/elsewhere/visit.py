"""A visit to the faces in a project that does all otherwise: run as a program, as settings hold for a process.

Runs are in a database of their own; users have a number and no name; the one AdminSite is not the default one; each
request is a transaction; no time zones; JSON alone, and neither drf-spectacular nor django-filter among the apps.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import django
from django.conf import settings

FOLDER = Path(sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp())


class Router:
    """Runs in a database of their own, all else in the default one."""

    @staticmethod
    def db_for_read(model: Any, **hints: Any) -> str | None:
        return "flows" if model._meta.app_label == "flow_app" else None

    db_for_write = db_for_read

    @staticmethod
    def allow_migrate(db: str, app_label: str, **hints: Any) -> bool:
        return (db == "flows") == (app_label == "flow_app")


def database(name: str) -> dict[str, Any]:
    return {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": FOLDER / f"{name}.sqlite3",
        "OPTIONS": {"transaction_mode": "IMMEDIATE"},
        "ATOMIC_REQUESTS": True,
    }


settings.configure(
    SECRET_KEY="x" * 50,
    ALLOWED_HOSTS=["*"],
    DATABASES={"default": database("default"), "flows": database("flows")},
    DATABASE_ROUTERS=[f"{__name__}.Router"],
    FLOW_APP={"DATABASE": "flows"},
    AUTH_USER_MODEL="elsewhere.Person",
    USE_TZ=False,
    TIME_ZONE="Asia/Tokyo",
    ROOT_URLCONF=__name__,
    STATIC_URL="/static/",
    INSTALLED_APPS=[
        "django.contrib.admin.apps.SimpleAdminConfig", "django.contrib.auth", "django.contrib.contenttypes",
        "django.contrib.sessions", "django.contrib.messages", "django.contrib.staticfiles", "rest_framework",
        "flow_app", "tests.elsewhere",
    ],
    MIDDLEWARE=[
        "django.contrib.sessions.middleware.SessionMiddleware", "django.middleware.csrf.CsrfViewMiddleware",
        "django.contrib.auth.middleware.AuthenticationMiddleware",
        "django.contrib.messages.middleware.MessageMiddleware",
    ],
    TEMPLATES=[
        {
            "BACKEND": "django.template.backends.django.DjangoTemplates",
            "APP_DIRS": True,
            "OPTIONS": {
                "context_processors": [
                    "django.template.context_processors.request", "django.contrib.auth.context_processors.auth",
                    "django.contrib.messages.context_processors.messages",
                ]
            },
        }
    ],
    REST_FRAMEWORK={
        "DEFAULT_RENDERER_CLASSES": ["rest_framework.renderers.JSONRenderer"],
        "DEFAULT_PERMISSION_CLASSES": ["rest_framework.permissions.IsAuthenticated"],
        "UNAUTHENTICATED_USER": None,
    },
)  # fmt: skip
django.setup()

from django.contrib import admin  # noqa: E402
from django.contrib.admin.models import LogEntry  # noqa: E402
from django.core.management import call_command  # noqa: E402
from django.test import Client  # noqa: E402
from django.urls import include, path  # noqa: E402

from flow_app import HookMetadata, workflow  # noqa: E402
from flow_app.admin import HookAdmin, RunAdmin  # noqa: E402
from flow_app.models import Event, Hook, Run  # noqa: E402
from tests.elsewhere.models import Person  # noqa: E402

office = admin.AdminSite(name="office")
office.register(Run, RunAdmin)
office.register(Hook, HookAdmin)
urlpatterns = [path("office/", office.urls), path("flow/", include("flow_app.api.urls"))]


@workflow("asks")
def asks(ctx: Any) -> Any:
    if ctx.cancellation_request is not None:
        return ctx.cancel()
    if ctx.hook_received("approval"):
        return ctx.complete(ctx.hook_payload("approval"))
    return ctx.create_hook("approval", ctx.input, HookMetadata.human_approval("order:7"))


def look(client: Client, *addresses: str) -> None:
    for address in addresses:
        answer = client.get(address)
        assert answer.status_code == 200, (address, answer.status_code)


def send(client: Client, address: str, body: Any = None) -> int:
    return int(client.post(address, json.dumps(body), content_type="application/json").status_code)


def visit_admin(client: Client) -> None:
    base = "/office/flow_app"
    form = {"workflow": "asks", "run_id": "r1", "input": "", "subject": "order:7", "labels": "team=red"}
    assert client.post(f"{base}/run/start/", form).status_code == 302
    run, hook = Run.objects.get(), Hook.objects.get()
    lists = (
        f"{base}/run/?label=team=red&created_at__gte=2020-01-01",
        f"{base}/run/overview/",
        f"{base}/hook/?q=order:7",
    )
    page = f"{base}/run/{run.pk}"
    look(client, "/office/", *lists, f"{page}/change/", f"{page}/live/", f"{page}/act/run-now/", f"{page}/act/cancel/")
    look(client, f"{base}/hook/{hook.pk}/change/", f"{base}/hook/{hook.pk}/act/answer/")
    assert client.post(f"{base}/hook/{hook.pk}/act/approve/").status_code == 302
    run.refresh_from_db()
    assert run.status == "completed", run.status
    assert '"by":"17"' in Event.objects.get(type="hook_received").payload
    look(client, *lists, f"{page}/change/", f"{page}/history/", f"{base}/hook/?state=all", "/office/")
    assert LogEntry.objects.count() == 2


def visit_api(client: Client) -> None:
    assert send(client, "/flow/runs", {"workflow": "asks", "input": "tok", "run_id": "r2"}) == 201
    assert send(client, "/flow/runs", {"workflow": "asks", "input": "tok", "run_id": "r2"}) == 200
    run = "/flow/runs/r2"
    parts = [f"{run}/{part}" for part in ("events", "hooks", "hooks/approval", "suspensions", "progress", "children")]
    look(client, "/flow/", "/flow/runs?created_after=2020-01-01", "/flow/hooks", "/flow/summary", run, *parts)
    assert Client().get(run).status_code == 403
    assert Client().get("/flow/callbacks/tok").status_code == 200
    answers = [send(Client(), "/flow/callbacks/tok", body) for body in (1, 1, 2)]
    assert answers == [200, 200, 409], answers
    assert client.get(run).json()["status"] == "completed"
    assert send(client, "/flow/runs", {"workflow": "asks", "run_id": "r3"}) == 201
    assert send(client, "/flow/runs/r3/cancel", {"reason": "no"}) in (200, 202)


if __name__ == "__main__":
    for alias in settings.DATABASES:
        call_command("migrate", database=alias, run_syncdb=True, verbosity=0)
    client = Client()
    client.force_login(Person.objects.create(number=17, is_superuser=True))
    visit_admin(client)
    visit_api(client)
    sys.stdout.write("all is well")
