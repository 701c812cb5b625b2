"""The engine of the project, put together from its settings."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, cast

from django.core.signals import setting_changed

from flow_app import conf
from flow_app.authoring.runtime import RegistryRuntime
from flow_app.core.ports import FlowTaskDispatcher
from flow_app.engine import FlowEngine
from flow_app.errors import ConfigurationError
from flow_app.store import DjangoEventStore
from flow_app.store.retention import RetentionStore


def engine_of(using: str | None = None) -> FlowEngine:
    """See :func:`flow_app.get_engine`."""
    return _engine(using or conf.options().database)


@lru_cache(maxsize=8)
def _engine(using: str) -> FlowEngine:
    options = conf.options()
    engine = FlowEngine(
        DjangoEventStore(using),
        RegistryRuntime(),
        builds=options.builds,
        options=options,
        secrets=conf.secrets(),
        observers=[_instance(entry) for entry in options.observers],
        retention=RetentionStore(using),
    )
    engine.services.dispatcher = _dispatcher(engine, options.dispatcher)
    return engine


def _dispatcher(engine: FlowEngine, path: str) -> FlowTaskDispatcher:
    factory = conf.dispatcher_factory(path)
    try:
        made: Any = factory(engine)
    except TypeError as error:
        raise ConfigurationError(f"FLOW_APP['DISPATCHER']: {path}(engine) is not possible: {error}") from error
    if not callable(getattr(made, "dispatch_for_build", None)):
        raise ConfigurationError(f"FLOW_APP['DISPATCHER'] names {path!r}, which makes no dispatcher: {made!r}.")
    return cast("FlowTaskDispatcher", made)


def _instance(entry: Any) -> Any:
    found = conf.observer(entry)
    try:
        return found() if isinstance(found, type) else found
    except TypeError as error:
        raise ConfigurationError(f"FLOW_APP['OBSERVERS']: {entry!r} cannot be made: {error}") from error


def _forget(*, setting: str, **kwargs: Any) -> None:
    if setting in ("FLOW_APP", "SECRET_KEY", "SECRET_KEY_FALLBACKS", "DATABASES"):
        _engine.cache_clear()


setting_changed.connect(_forget, dispatch_uid="flow_app.engine")
