"""The matrix: each supported Django, on a Python that it supports. ``FLOW_TEST_DB`` picks the database."""

from __future__ import annotations

import os

import nox

nox.options.default_venv_backend = "venv"
nox.options.error_on_missing_interpreters = True

MATRIX = [("3.11", "5.2"), ("3.12", "6.0"), ("3.13", "6.1")]
IDS = [f"py{python}-django{django}" for python, django in MATRIX]


@nox.session
@nox.parametrize("python,django", MATRIX, ids=IDS)
def tests(session: nox.Session, django: str) -> None:
    """Run all tests."""
    extra = "[mysql]" if os.environ.get("FLOW_TEST_DB") == "mariadb" else ""
    session.install("-r", "requirements.txt", f"Django~={django}.0", "-e", f".{extra}")
    session.run("python", "-m", "pytest", *session.posargs)


@nox.session
@nox.parametrize("python,django", MATRIX, ids=IDS)
def browser(session: nox.Session, django: str) -> None:
    """Use the site as a person does. The browser is the system's own: without Chromium this fails."""
    session.install("-r", "requirements.txt", f"Django~={django}.0", "-e", ".")
    session.install("pip>=25.1")  # which knows groups
    session.install("--group", "browser")
    session.run("python", "-m", "pytest", "tests/browser", *session.posargs, env={"CI": "true"})
