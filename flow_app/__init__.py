"""Durable, event-sourced workflows for Django, kept in the project's own database."""

from __future__ import annotations

from typing import Any

__all__ = ["__version__"]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return _version()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("flow-app")
    except PackageNotFoundError:  # a checkout that is not installed
        return "0+unknown"
