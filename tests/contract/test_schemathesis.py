"""The API holds what its description says, whatever is sent to it, and never answers 500.

It needs schemathesis: ``make contract``.
"""

from __future__ import annotations

import base64
from typing import Any

import pytest
from django.contrib.auth import get_user_model
from hypothesis import HealthCheck, settings

schemathesis = pytest.importorskip("schemathesis")

from schemathesis.specs.openapi.checks import ignored_auth, negative_data_rejection, positive_data_acceptance  # noqa: E402

from flow_app import get_engine  # noqa: E402
from project.wsgi import application  # noqa: E402

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.filterwarnings("default"),
    pytest.mark.usefixtures("_unthrottled", "_something_there"),
]

NAMED = {"run_id": "waits", "hook_id": "decision", "token": "tok"}
BASIC = {"Authorization": "Basic " + base64.b64encode(b"ada:pw").decode()}
#: A workflow's name must be registered, and an answer fit its hook: no description can say so. And one way to log in
#: is broken while the other still holds: it is the permission matrix that shows what happens without any.
NOT_MEANT = [positive_data_acceptance, ignored_auth]
fuzzed = settings(
    max_examples=25, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck), database=None
)
schema = schemathesis.openapi.from_wsgi("/api/schema/?format=json", application)


@pytest.fixture
def _unthrottled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("flow_app.api.throttling.TokenThrottle.get_rate", lambda throttle: None)


@pytest.fixture
def _something_there() -> None:
    user = get_user_model().objects.create_superuser("ada", password="pw")
    assert user.is_active
    get_engine().start("approval", {"token": "tok", "schema": True}, run_id="waits", labels={"team": "red"})
    get_engine().start("echo", 1, run_id="ended")


def _not_meant(case: Any) -> list[Any]:
    """Besides those: a form sends its empty boxes along, and an empty filter asks nothing, whatever its type."""
    is_empty = any(value in ("", [""]) for value in (case.query or {}).values())
    return [*NOT_MEANT, negative_data_rejection] if is_empty else NOT_MEANT


def _aimed(case: Any) -> Any:
    """The same case, at something that is there."""
    for name, value in NAMED.items():
        if name in case.path_parameters:
            case.path_parameters[name] = value
    if isinstance(case.body, dict) and "workflow" in case.body and case.meta.generation.mode.is_positive:
        case.body["workflow"] = "approval"
    return case


@schema.parametrize()
@fuzzed
def test_without_authentication(case: Any) -> None:
    case.call_and_validate()


@schema.parametrize()
@fuzzed
def test_with_authentication(case: Any) -> None:
    case.call_and_validate(headers=BASIC, excluded_checks=_not_meant(case))


@schema.parametrize()
@fuzzed
def test_what_is_there(case: Any) -> None:
    _aimed(case).call_and_validate(headers=BASIC, excluded_checks=_not_meant(case))
