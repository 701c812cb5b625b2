from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from celery import Celery, _state

from flow_app import get_engine, workflow
from flow_app.engine import FlowEngine
from flow_app.models import Run
from project.celery import app as project_app
from tests.celery.hints.post import Post, forget_all
from tests.engine.conftest import registered

__all__ = ["registered"]

CELERY = {"DISPATCHER": "flow_app.dispatch.CeleryDispatcher"}


@pytest.fixture(autouse=True)
def _nothing_is_left(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No message and no app of another test: an app that is made is the current one."""
    monkeypatch.setattr(_state, "default_app", project_app)
    monkeypatch.setattr(_state._tls, "current_app", project_app)
    forget_all()
    yield
    forget_all()


@pytest.fixture
def post() -> Post:
    return Post(project_app)


@pytest.fixture
def celery_conf() -> Iterator[Callable[..., None]]:
    """The project app's configuration, to be changed for the test: ``celery_conf(task_always_eager=True)``."""
    conf: Any = project_app.conf
    assert conf.broker_url  # read it first: until then, changes are kept elsewhere
    before: dict[str, Any] = {}

    def change(**values: Any) -> None:
        for key, value in values.items():
            before.setdefault(key, conf[key])
            conf[key] = value

    yield change
    conf.update(before)


@pytest.fixture
def flow_app(settings: Any) -> Any:
    """Set FLOW_APP for the test; the dispatcher is Celery's."""

    def change(**options: Any) -> None:
        settings.FLOW_APP = {**CELERY, **options}

    change()
    return change


@pytest.fixture
def engine(transactional_db: None, flow_app: Any, post: Post) -> FlowEngine:
    """The project's engine, which sends through Celery."""
    return get_engine()


@pytest.fixture
def overdue() -> Callable[[], None]:
    """Make every open run one that somebody should have looked at by now."""
    long_ago = datetime(2020, 1, 1, tzinfo=UTC)
    return lambda: Run.objects.filter(wake_at__isnull=False).update(wake_at=long_ago) and None


@pytest.fixture
def use_app(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Make another app the current one, in every thread."""

    def use(app: Celery) -> Post:
        monkeypatch.setattr(_state, "default_app", app)
        monkeypatch.setattr(_state._tls, "current_app", app)
        return Post(app)

    return use


@pytest.fixture
def asks() -> Any:
    """A workflow that waits for an answer."""

    @workflow("asks")
    def asks(ctx):
        if not ctx.hook_received("answer"):
            return ctx.create_hook("answer", "a-secret-token")
        return ctx.complete(ctx.hook_payload("answer"))

    return asks
