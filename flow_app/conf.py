"""The one setting: ``FLOW_APP``, a dict of which every key is optional. Read when it is needed, never at import."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from datetime import timedelta
from functools import cached_property, partial
from typing import Any, cast

from django.conf import settings
from django.utils.module_loading import import_string

from flow_app.core.identifiers import check_build_id
from flow_app.core.payload import IMPORT_LIMITS, Limits
from flow_app.core.spec import RuntimeBuildCompatibility
from flow_app.errors import ConfigurationError, InvalidRuntimeBuildIdError


@dataclass(frozen=True, slots=True)
class Slice:
    """How much one drive does before it lets others have their turn."""

    steps: int = 1000
    seconds: float = 60.0


@dataclass(frozen=True)
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
    tracebacks: bool = True

    @cached_property
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
    return Options(**{key.lower(): value for key, value in ((key, read(key, raw)) for key, raw in given().items())})


def given() -> Mapping[Any, Any]:
    """``FLOW_APP`` as it is written. Raises ConfigurationError when it is no dict."""
    found = getattr(settings, "FLOW_APP", {})
    if not isinstance(found, Mapping):
        raise ConfigurationError(f"FLOW_APP must be a dict, not {found!r}.")
    return found


def secrets() -> tuple[str | bytes, ...]:
    """SECRET_KEY and its fallbacks, newest first: hook tokens are derived from them."""
    return (settings.SECRET_KEY, *settings.SECRET_KEY_FALLBACKS)


def dispatcher_factory(path: str) -> Callable[[Any], Any]:
    """What FLOW_APP['DISPATCHER'] names: called with the engine it makes the dispatcher. Raises ConfigurationError."""
    found = _imported("DISPATCHER", path)
    if not callable(found):
        raise ConfigurationError(f"FLOW_APP['DISPATCHER'] names {path!r}, which is not a class or function.")
    return cast("Callable[[Any], Any]", found)


def observer(entry: Any) -> Any:
    """An observer, or the class of one, that an entry of FLOW_APP['OBSERVERS'] names. Raises ConfigurationError."""
    found = _imported("OBSERVERS", entry) if isinstance(entry, str) else entry
    if not callable(getattr(found, "on_event", None)):
        raise ConfigurationError(f"FLOW_APP['OBSERVERS'] has {entry!r}, which is no observer: it has no on_event().")
    return found


def _imported(key: str, path: str) -> Any:
    try:
        return import_string(path)
    except Exception as error:  # whatever the module raises while it is imported
        raise ConfigurationError(f"FLOW_APP[{key!r}]: {path!r} cannot be imported: {error}") from error


def read(key: Any, value: Any) -> Any:
    """One option's value, brought into its form. Raises ConfigurationError."""
    if key not in KEYS:
        raise ConfigurationError(f"FLOW_APP has the unknown key {key!r}. The keys are {', '.join(KEYS)}.")
    if key in _DURATIONS:
        return _duration(key, value)
    if key in _COUNTS:
        return _count(key, value)
    return _READ[key](value)


def _text(key: str, value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise ConfigurationError(f"FLOW_APP[{key!r}] must be a string, not {value!r}.")
    return value


def _duration(key: str, value: Any) -> timedelta:
    length = value
    if isinstance(value, int | float) and not isinstance(value, bool):
        try:
            length = timedelta(seconds=value)
        except (OverflowError, ValueError):  # endless, or not a number
            length = None
    if not isinstance(length, timedelta) or length <= timedelta():
        raise ConfigurationError(f"FLOW_APP[{key!r}] must be a positive timedelta or number of seconds, not {value!r}.")
    return length


def _count(key: str, value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ConfigurationError(f"FLOW_APP[{key!r}] must be a whole number of at least 1, not {value!r}.")
    if key == "MAX_DEPTH" and value > IMPORT_LIMITS.max_depth:
        raise ConfigurationError(f"FLOW_APP['MAX_DEPTH'] must be at most {IMPORT_LIMITS.max_depth}, not {value!r}.")
    return value


def _switch(key: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise ConfigurationError(f"FLOW_APP[{key!r}] must be True or False, not {value!r}.")
    return value


def _slice(value: Any) -> Slice:
    found = value
    if isinstance(value, Mapping) and set(value) <= {"steps", "seconds"}:
        found = Slice(**value)
    if not isinstance(found, Slice):
        raise ConfigurationError("FLOW_APP['DRIVE_SLICE'] must be a dict with the keys 'steps' and 'seconds'.")
    steps: Any = found.steps
    seconds: Any = found.seconds
    if not isinstance(steps, int) or isinstance(steps, bool) or steps < 1:
        raise ConfigurationError(f"FLOW_APP['DRIVE_SLICE']['steps'] must be a whole number above 0, not {steps!r}.")
    if not isinstance(seconds, int | float) or isinstance(seconds, bool) or not seconds > 0:
        raise ConfigurationError(f"FLOW_APP['DRIVE_SLICE']['seconds'] must be a number above 0, not {seconds!r}.")
    return found


def _build(value: Any) -> Mapping[str, Any]:
    if not isinstance(value, Mapping) or set(value) - set(_BUILD_KEYS):
        raise ConfigurationError(f"FLOW_APP['BUILD'] must be a dict with keys among {', '.join(_BUILD_KEYS)}.")
    current = value.get("current")
    compatible = value.get("compatible", ())
    if not isinstance(compatible, list | tuple | set | frozenset):
        raise ConfigurationError(f"FLOW_APP['BUILD']['compatible'] must be a list of build ids, not {compatible!r}.")
    try:
        for build in compatible if current is None else (current, *compatible):
            check_build_id(build)
    except InvalidRuntimeBuildIdError as error:
        raise ConfigurationError(f"FLOW_APP['BUILD']: {error}") from None
    if compatible and current is None:
        raise ConfigurationError("FLOW_APP['BUILD'] has 'compatible' builds, but no 'current' one.")
    unpinned = value.get("accept_unpinned", False)
    if not isinstance(unpinned, bool):
        raise ConfigurationError(f"FLOW_APP['BUILD']['accept_unpinned'] must be True or False, not {unpinned!r}.")
    _check_routes(value.get("routes", {}))
    if value.get("on_missing_route", "error") not in ("error", "skip"):
        raise ConfigurationError(
            f"FLOW_APP['BUILD']['on_missing_route'] must be 'error' or 'skip', not {value['on_missing_route']!r}."
        )
    return value


def _check_routes(routes: Any) -> None:
    if not isinstance(routes, Mapping):
        raise ConfigurationError(f"FLOW_APP['BUILD']['routes'] must be a dict of queues by build, not {routes!r}.")
    for build, queue in routes.items():
        try:
            check_build_id(build)
        except InvalidRuntimeBuildIdError as error:
            raise ConfigurationError(f"FLOW_APP['BUILD']['routes']: {error}") from None
        if not isinstance(queue, str) or not queue:
            raise ConfigurationError(f"FLOW_APP['BUILD']['routes'][{build!r}] must name a queue, not {queue!r}.")


def _observers(value: Any) -> tuple[Any, ...]:
    if not isinstance(value, list | tuple):
        raise ConfigurationError(f"FLOW_APP['OBSERVERS'] must be a list of observers, not {value!r}.")
    for entry in value:
        if not isinstance(entry, str):
            observer(entry)
    return tuple(value)


_READ: Mapping[str, Callable[[Any], Any]] = {
    "DATABASE": partial(_text, "DATABASE"),
    "DISPATCHER": partial(_text, "DISPATCHER"),
    "BUILD": _build,
    "DRIVE_SLICE": _slice,
    "OBSERVERS": _observers,
    "TRACEBACKS": partial(_switch, "TRACEBACKS"),
}
