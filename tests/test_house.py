"""The rules of the house that import-linter cannot see: what an import really brings in."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

import flow_app

PACKAGE = Path(flow_app.__file__).parent
ROOMS = [
    room
    for room in ["core", "authoring", "engine", "store", "models", "dispatch", "answering", "presenting", "admin"]
    if find_spec(f"flow_app.{room}")
]
OPTIONAL = {"celery", "django_filters", "drf_spectacular", "jsonschema", "kombu", "redis", "rest_framework"}

SETUP = """
import django
from django.conf import settings
apps = ["admin", "auth", "contenttypes"]
settings.configure(INSTALLED_APPS=[*(f"django.contrib.{app}" for app in apps), "flow_app"], USE_TZ=True)
django.setup()
"""


def loaded_by(code: str) -> set[str]:
    """The top-level packages that a fresh interpreter has loaded after running ``code``."""
    script = f"{code}\nimport sys\nprint(*{{name.partition('.')[0] for name in sys.modules}})"
    return set(subprocess.check_output([sys.executable, "-c", script], text=True, cwd=PACKAGE.parent).split())


def imports_of(path: Path) -> set[str]:
    """Absolute names of everything that a module of flow_app imports, wherever in the file."""
    package = ["flow_app", *path.relative_to(PACKAGE).parent.parts]
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else []
            base = ".".join([*above, *filter(None, [node.module])])
            found |= {f"{base}.{alias.name}" for alias in node.names} if base == "flow_app" else {base}
    return found


def test_flow_app_can_be_imported_before_django_is_set_up():
    loaded = loaded_by("import flow_app, flow_app.core, flow_app.errors, flow_app.types; flow_app.__version__")
    assert not loaded & {"django", *OPTIONAL}


@pytest.mark.parametrize("room", ROOMS)
def test_no_room_loads_an_optional_dependency(room):
    assert not loaded_by(f"{SETUP}\nimport flow_app.{room}") & OPTIONAL


def test_the_example_project_uses_only_the_public_modules():
    inner = re.compile(r"^(?:from|import) flow_app\.(?:core|engine|authoring|store|models)\b", re.MULTILINE)
    for path in (PACKAGE.parent / "project").rglob("*.py"):
        assert not inner.findall(path.read_text(encoding="utf-8")), path


def test_core_imports_the_standard_library_and_itself():
    for path in [PACKAGE / "errors.py", *(PACKAGE / "core").rglob("*.py")]:
        strangers = {
            name
            for name in imports_of(path)
            if name.partition(".")[0] not in sys.stdlib_module_names
            and not f"{name}.".startswith(("flow_app.core.", "flow_app.errors."))
        }
        assert not strangers, f"{path} imports {strangers}"
