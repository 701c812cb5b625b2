"""The API's description, and the API without one."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command
from django.utils import translation
from drf_spectacular.generators import SchemaGenerator
from rest_framework import serializers
from rest_framework.test import APIClient

from flow_app.api.filters import HookFilters, RunFilters
from flow_app.api.urls import urlpatterns
from tests.api.calls import get, start

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def description() -> Any:
    return SchemaGenerator().get_schema(request=None, public=True)


def test_the_description_is_valid_and_has_no_warnings(tmp_path: Path) -> None:
    call_command("spectacular", "--validate", "--fail-on-warn", "--file", str(tmp_path / "schema.yml"))


def test_names_collide_with_none_of_the_projects(description: Any) -> None:
    names = set(description["components"]["schemas"])
    assert {"FlowRun", "FlowHook", "FlowProblem", "FlowStartRequest"} <= names
    assert not {name for name in names if not re.match("(Paginated)?Flow", name)}


def test_every_address_is_described_and_every_operation_has_its_name(description: Any) -> None:
    paths = {path: item for path, item in description["paths"].items() if path.startswith("/api/flow/")}
    assert len(paths) == len(urlpatterns)
    operations = [item[method] for item in paths.values() for method in item]
    names = [operation["operationId"] for operation in operations]
    assert len(set(names)) == len(names)
    assert all(re.fullmatch("flow_[a-z_]+", name) for name in names)
    assert all(operation["tags"] == ["flow"] and operation["summary"] for operation in operations)


@pytest.mark.parametrize(
    ("path", "named"),
    [
        ("runs", {*RunFilters.base_filters, "cursor", "page_size"}),
        ("hooks", {*HookFilters.base_filters, "cursor", "page_size", "include"}),
        ("runs/{run_id}/events", {"run_id", "cursor", "page_size", "include", "after"}),
        ("runs/{run_id}/hooks", {"run_id", "cursor", "page_size", "include"}),
        ("runs/{run_id}", {"run_id", "include", "If-None-Match"}),
    ],
)
def test_whatever_may_be_asked_is_described(description: Any, path: str, named: set[str]) -> None:
    operation = description["paths"][f"/api/flow/{path}"]["get"]
    assert {parameter["name"] for parameter in operation.get("parameters", [])} == named


def _helps(tree: Any) -> set[str]:
    """What the description says of fields."""
    if isinstance(tree, list):
        return set().union(*map(_helps, tree))
    if not isinstance(tree, dict):
        return set()
    own = {tree["description"]} if isinstance(tree.get("description"), str) else set()
    return own.union(*map(_helps, tree.values()))


def _kinds(base: type[Any]) -> list[type[Any]]:
    found = [kind for kind in base.__subclasses__() if kind.__module__.startswith("flow_app.api")]
    return [*found, *(inner for kind in base.__subclasses__() for inner in _kinds(kind))]


def test_what_is_said_of_fields_and_filters_is_said_in_the_readers_language() -> None:
    helps = [field.help_text for kind in _kinds(serializers.Serializer) for field in kind().fields.values()]
    helps += [
        found.extra.get("help_text") for kind in (RunFilters, HookFilters) for found in kind.base_filters.values()
    ]
    english = {str(text) for text in helps if text}
    assert len(english) > 30
    with translation.override("de"):
        german = SchemaGenerator().get_schema(request=None, public=True)
        assert not english & {str(text) for text in helps if text}
        assert not english & _helps(german["components"]["schemas"])
        asked = german["paths"]["/api/flow/runs"]["get"]["parameters"]
        assert "Hält ihn ein Fehler auf?" in {item.get("description") for item in asked}


def test_only_the_door_is_public(description: Any) -> None:
    for path, item in description["paths"].items():
        for method, operation in item.items():
            if "/api/flow/" in path:
                is_public = {} in operation.get("security", [{}])
                assert is_public == path.endswith("/callbacks/{token}"), (method, path)


WITHOUT = """
import sys
sys.modules["drf_spectacular"] = None
import django
from django.conf import settings
from project import settings as own
values = {name: getattr(own, name) for name in dir(own) if name.isupper()}
values["INSTALLED_APPS"] = [app for app in own.INSTALLED_APPS if app != "drf_spectacular"]
values["REST_FRAMEWORK"] = {**own.REST_FRAMEWORK, "DEFAULT_SCHEMA_CLASS": "rest_framework.schemas.openapi.AutoSchema"}
values["ROOT_URLCONF"] = "flow_app.api.urls"
values["DATABASES"] = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}}
values["ALLOWED_HOSTS"] = ["*"]
settings.configure(**values)
django.setup()
from django.core.management import call_command
call_command("migrate", verbosity=0)
from django.contrib.auth import get_user_model
from django.urls import include, path
from rest_framework.test import APIClient
import types
urls = types.ModuleType("urls")
urls.urlpatterns = [path("flow/", include("flow_app.api.urls"))]
settings.ROOT_URLCONF = urls
client = APIClient()
client.force_authenticate(get_user_model().objects.create_superuser("root"))
for address in client.get("/flow/").json().values():
    assert client.get(address).status_code == 200, address
print(client.get("/flow/callbacks/nope").json()["code"])
"""


def test_the_api_works_without_drf_spectacular() -> None:
    done = subprocess.run([sys.executable, "-c", WITHOUT], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "hook_token_not_found", done.stderr


@pytest.mark.django_db(transaction=True)
def test_links_lead_to_where_the_api_is_mounted(api: APIClient, settings: Any) -> None:
    settings.ROOT_URLCONF = "tests.api.urls_red"
    start(api, "echo", run_id="r1", labels={"team": "red"})
    first = get(api, "runs/r1").json()
    second = api.get("/elsewhere/runs/r1").json()
    assert first["url"] == "http://testserver/api/flow/runs/r1"
    assert second["links"]["events"] == "http://testserver/elsewhere/runs/r1/events"
    assert api.get(second["links"]["events"]).status_code == 200
