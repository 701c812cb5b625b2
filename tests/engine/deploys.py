"""Workflows defined in a line, and again after a deploy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from flow_app import workflow


def redefine(name: str, decide: Callable[[Any], Any]) -> None:
    """The workflow after a deploy."""
    decide.__qualname__ = "deployed"
    workflow(name)(decide)
