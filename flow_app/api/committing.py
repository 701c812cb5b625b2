"""A verb, committed before it is answered for."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar, cast

from django.db import transaction

from flow_app.engine import FlowEngine
from flow_app.errors import FlowError, StoreError
from flow_app.store import DjangoEventStore

T = TypeVar("T")


def commit(engine: FlowEngine, act: Callable[[], T]) -> T:
    """Do a verb in a transaction of its own and commit it; then, and not before, the run is driven.

    So what the drive meets, or a broker that is away, is logged and is nobody's answer: the decision stands, and the
    run's ``wake_at`` brings it back. A verb that the engine refuses is raised once all is committed, too: what was
    written on the way to the refusal, a deadline that had passed, stays written.
    """
    store = cast(DjangoEventStore, engine.store)

    def once() -> tuple[T | None, FlowError | None]:
        with transaction.atomic(using=store.using):
            try:
                return act(), None
            except StoreError:
                raise  # the transaction is lost
            except FlowError as error:
                return None, error

    result, refused = store.attempt(once)
    if refused is not None:
        raise refused
    return cast(T, result)
