"""A client that a generator made from the description runs an approval, over HTTP.

It needs openapi-python-client: ``make contract``.
"""

from __future__ import annotations

import base64
import importlib
import subprocess
import sys
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.core.management import call_command

pytest.importorskip("openapi_python_client")

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.filterwarnings("default")]

NAME = "flow_client"
OPERATIONS = (
    "flow_runs_start", "flow_runs_retrieve", "flow_hooks_list", "flow_hooks_resume", "flow_callbacks_retrieve",
    "flow_callbacks_resume", "flow_callbacks_bearer_resume", "flow_runs_cancel",
)  # fmt: skip


@pytest.fixture(scope="module")
def generated(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """The client's classes and operations, by name."""
    folder = tmp_path_factory.mktemp("client")
    call_command("spectacular", "--format", "openapi-json", "--file", str(folder / "schema.json"))
    command = [sys.executable, "-m", "openapi_python_client", "generate", "--path", "schema.json", "--meta", "none"]
    (folder / "config.yml").write_text("post_hooks: []\n")
    subprocess.run(
        [*command, "--output-path", NAME, "--config", "config.yml", "--fail-on-warning"], cwd=folder, check=True
    )
    assert (folder / NAME / "api" / "flow").is_dir()
    sys.path.insert(0, str(folder))
    try:
        found = {name: importlib.import_module(f"{NAME}.api.flow.{name}") for name in OPERATIONS}
        yield SimpleNamespace(
            models=importlib.import_module(f"{NAME}.models"), client=importlib.import_module(NAME), **found
        )
    finally:
        sys.path.remove(str(folder))


@pytest.fixture
def host(generated: Any, live_server: Any) -> Iterator[Any]:
    """The client of a system that may do everything."""
    get_user_model().objects.create_superuser("ada", password="pw")
    secret = base64.b64encode(b"ada:pw").decode()
    with generated.client.AuthenticatedClient(base_url=live_server.url, token=secret, prefix="Basic") as client:
        yield client


@pytest.fixture
def outside(generated: Any, live_server: Any) -> Iterator[Any]:
    """The client of one who has nothing but a hook's token."""
    with generated.client.Client(base_url=live_server.url) as client:
        yield client


def test_a_generated_client_runs_an_approval(generated: Any, host: Any, outside: Any) -> None:
    models = generated.models

    wanted = models.FlowStartRequest(workflow="approval", input_={"schema": True, "token": "tok"}, run_id="r1")
    started = generated.flow_runs_start.sync_detailed(client=host, body=wanted)
    assert (started.status_code, started.parsed.status) == (201, "suspended")
    assert "approval" in started.parsed.headline
    assert generated.flow_runs_start.sync_detailed(client=host, body=wanted).status_code == 200

    (hook,) = generated.flow_hooks_list.sync(client=host).results
    assert (hook.run_id, hook.hook_id, hook.kind, hook.labels.to_dict()) == (
        "r1", "decision", "human_approval", {"team": "red"},
    )  # fmt: skip
    asked = generated.flow_callbacks_retrieve.sync("tok", client=outside)
    assert (asked.subject, asked.status) == ("invoice:7", "active")

    wrong = generated.flow_callbacks_resume.sync_detailed("tok", client=outside, body={"approved": "yes"})
    assert (wrong.status_code, wrong.parsed.code) == (400, "hook_payload")
    assert [error.pointer for error in wrong.parsed.errors] == ["/approved"]
    answered = generated.flow_callbacks_resume.sync_detailed("tok", client=outside, body={"approved": True})
    assert (answered.status_code, answered.parsed.status) == (200, "received")

    late = models.FlowAnswerRequest(payload={"approved": False})
    refused = generated.flow_hooks_resume.sync_detailed("r1", "decision", client=host, body=late)
    assert (refused.status_code, refused.parsed.code) == (409, "hook_conflict")
    assert refused.parsed.standing.payload == {"approved": True}

    run = generated.flow_runs_retrieve.sync("r1", client=host, include="payload")
    assert (run.status, run.output) == ("completed", {"decision": {"approved": True}})


def test_a_generated_client_answers_with_a_bearer_token(generated: Any, host: Any, live_server: Any) -> None:
    wanted = generated.models.FlowStartRequest(workflow="approval", input_={"token": "tok"}, run_id="r1")
    generated.flow_runs_start.sync(client=host, body=wanted)
    with generated.client.AuthenticatedClient(base_url=live_server.url, token="tok") as outside:
        answered = generated.flow_callbacks_bearer_resume.sync_detailed(client=outside, body=True)
    assert (answered.status_code, answered.parsed.status) == (200, "received")
