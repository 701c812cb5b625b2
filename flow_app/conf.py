"""The one setting: ``FLOW_APP``, a dict of which every key is optional. Read when it is needed, never at import."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from datetime import timedelta
from typing import Any

from django.conf import settings

from flow_app.core.payload import Limits
from flow_app.core.spec import RuntimeBuildCompatibility
from flow_app.errors import ConfigurationError


@dataclass(frozen=True, slots=True)
class Slice:
    """How much one drive does before it lets others have their turn."""

    steps: int = 1000
    seconds: float = 60.0


@dataclass(frozen=True, slots=True)
class Options:
    """``FLOW_APP`` with its defaults; field names are the keys in lower case."""

    database: str = "default"
    dispatcher: str = "flow_app.dispatch.InlineDispatcher"
    build: Mapping[str, Any] = field(default_factory=dict)
    lease: timedelta = timedelta(seconds=30)
    dispatch_grace: timedelta = timedelta(seconds=30)
    drive_slice: Slice = Slice()
    replay_limit: int = 1024
    max_deliveries: int = 5
    max_payload: int = 1024 * 1024
    max_depth: int = 64
    step_threads: int = 8
    observers: tuple[Any, ...] = ()

    @property
    def limits(self) -> Limits:
        return Limits(max_bytes=self.max_payload, max_depth=self.max_depth)

    @property
    def builds(self) -> RuntimeBuildCompatibility | None:
        """The builds this process may run; None when the project does not tell builds apart."""
        if not self.build.get("current"):
            return None
        return RuntimeBuildCompatibility(
            self.build["current"],
            frozenset(self.build.get("compatible", ())),
            unpinned=bool(self.build.get("accept_unpinned", False)),
        )


KEYS = tuple(option.name.upper() for option in fields(Options))
_DURATIONS = ("LEASE", "DISPATCH_GRACE")
_COUNTS = ("REPLAY_LIMIT", "MAX_DELIVERIES", "MAX_PAYLOAD", "MAX_DEPTH", "STEP_THREADS")
_BUILD_KEYS = ("current", "compatible", "accept_unpinned", "routes", "on_missing_route")


def options() -> Options:
    """The options in force. Raises ConfigurationError for an unknown key or a value of the wrong kind."""
    given: Mapping[str, Any] = getattr(settings, "FLOW_APP", {})
    if not isinstance(given, Mapping):
        raise ConfigurationError("FLOW_APP must be a dict.")
    return Options(**{key.lower(): _read(key, value) for key, value in given.items()})


def secrets() -> tuple[str | bytes, ...]:
    """SECRET_KEY and its fallbacks, newest first: hook tokens are derived from them."""
    return (settings.SECRET_KEY, *settings.SECRET_KEY_FALLBACKS)


def _read(key: str, value: Any) -> Any:
    if key not in KEYS:
        raise ConfigurationError(f"FLOW_APP has the unknown key {key!r}. The keys are {', '.join(KEYS)}.")
    if key in _DURATIONS:
        return _duration(key, value)
    if key in _COUNTS:
        return _count(key, value)
    if key == "DRIVE_SLICE":
        return _slice(value)
    if key == "BUILD":
        return _build(value)
    return tuple(value) if key == "OBSERVERS" else value


def _duration(key: str, value: Any) -> timedelta:
    if isinstance(value, int | float) and not isinstance(value, bool):
        value = timedelta(seconds=value)
    if not isinstance(value, timedelta) or value <= timedelta():
        raise ConfigurationError(f"FLOW_APP[{key!r}] must be a positive timedelta or number of seconds, not {value!r}.")
    return value


def _count(key: str, value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ConfigurationError(f"FLOW_APP[{key!r}] must be a whole number of at least 1, not {value!r}.")
    return value


def _slice(value: Any) -> Slice:
    if isinstance(value, Slice):
        return value
    if not isinstance(value, Mapping) or set(value) - {"steps", "seconds"}:
        raise ConfigurationError("FLOW_APP['DRIVE_SLICE'] must be a dict with the keys 'steps' and 'seconds'.")
    return Slice(**value)


def _build(value: Any) -> Mapping[str, Any]:
    if not isinstance(value, Mapping) or set(value) - set(_BUILD_KEYS):
        raise ConfigurationError(f"FLOW_APP['BUILD'] must be a dict with keys among {', '.join(_BUILD_KEYS)}.")
    return value
