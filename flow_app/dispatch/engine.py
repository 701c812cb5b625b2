"""The engine of the project, put together from its settings."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from django.core.signals import setting_changed
from django.utils.module_loading import import_string

from flow_app import conf
from flow_app.authoring.runtime import RegistryRuntime
from flow_app.engine import FlowEngine
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
        observers=[_instance(observer) for observer in options.observers],
        retention=RetentionStore(using),
    )
    engine.services.dispatcher = import_string(options.dispatcher)(engine)
    return engine


def _instance(observer: Any) -> Any:
    found = import_string(observer) if isinstance(observer, str) else observer
    return found() if isinstance(found, type) else found


def _forget(*, setting: str, **kwargs: Any) -> None:
    if setting in ("FLOW_APP", "SECRET_KEY", "SECRET_KEY_FALLBACKS", "DATABASES"):
        _engine.cache_clear()


setting_changed.connect(_forget, dispatch_uid="flow_app.engine")
