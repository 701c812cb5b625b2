"""What a test hands to the processes it starts, in one variable of the environment."""

from __future__ import annotations

import json
import os
from typing import Any

NAME = "FLOW_TEST_CLUSTER"


def given() -> dict[str, Any]:
    """``database``, ``folder``, ``celery`` and ``flow`` (settings) and ``sabotage``; empty outside such a process."""
    found: dict[str, Any] = json.loads(os.environ.get(NAME, "{}"))
    return found
