from __future__ import annotations

from tests.engine.conftest import clock, registered, store

__all__ = ["clock", "registered", "store"]
