"""Calls that many tests make."""

from __future__ import annotations

import json
from typing import Any

from rest_framework.test import APIClient

BASE = "/api/flow/"
NOTHING = object()


def get(client: APIClient, path: str, **more: Any) -> Any:
    return client.get(BASE + path, **more)


def post(client: APIClient, path: str, body: Any = NOTHING, **more: Any) -> Any:
    """Send JSON; ``None`` is JSON, too."""
    text = b"" if body is NOTHING else json.dumps(body)
    return client.post(BASE + path, text, content_type="application/json", **more)


def delete(client: APIClient, path: str, **more: Any) -> Any:
    return client.delete(BASE + path, **more)


def start(client: APIClient, workflow: str = "approval", value: Any = None, **more: Any) -> str:
    """Start a run; its id."""
    response = post(client, "runs", {"workflow": workflow, "input": value, **more})
    assert response.status_code == 201, response.content
    run_id: str = response.json()["run_id"]
    return run_id


def refused(response: Any, status: int, code: str) -> dict[str, Any]:
    """Check a refusal; the problem."""
    assert (response.status_code, response["Content-Type"]) == (status, "application/problem+json"), response.content
    problem: dict[str, Any] = response.json()
    assert (problem["status"], problem["code"]) == (status, code), problem
    return problem


def pointers(problem: dict[str, Any]) -> set[str]:
    return {error["pointer"] for error in problem["errors"]}
