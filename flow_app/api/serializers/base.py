"""What all that is read has in common."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from rest_framework import serializers

from flow_app.presenting.tracebacks import reveal


class Read(serializers.Serializer[Any]):
    """Nothing but reading. The view hands in ``now``, and whether payloads are shown."""

    @property
    def now(self) -> datetime:
        now: datetime = self.context["now"]
        return now

    def reveal_traceback(self, traceback: str) -> str:
        """Where code failed, as a payload is shown; empty where payloads were not asked for."""
        return reveal(traceback, redact=self.context["redact"]) if self.context.get("payloads") else ""

    def reveal(self, value: Any) -> Any:
        """A payload, redacted; null where it was not asked for."""
        return self.context["redact"](value) if self.context.get("payloads") else None
