"""How the log is kept: on the Django ORM's connections, or in memory for fast tests."""

from flow_app.store.clock import DatabaseClock, SystemClock
from flow_app.store.memory import InMemoryEventStore
from flow_app.store.orm import DjangoEventStore

__all__ = ["DatabaseClock", "DjangoEventStore", "InMemoryEventStore", "SystemClock"]
