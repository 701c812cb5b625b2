from __future__ import annotations

from django.core.management import CommandError


class SystemFailureError(CommandError):
    """A part of the system has ended by itself, or never began."""
