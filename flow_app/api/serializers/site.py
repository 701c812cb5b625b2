"""What the site has, and how it refuses."""

from __future__ import annotations

from django.utils.translation import gettext_lazy as _
from rest_framework import serializers

from flow_app.api.fields import AnyJson, Instant, Text
from flow_app.api.serializers.base import Read


class FlowWorkflow(Read):
    """A workflow that this process knows."""

    name = Text()
    version = Text()


class FlowSummary(Read):
    """Counts of the runs that the caller sees, and of what is open in them."""

    total = serializers.IntegerField()
    pending = serializers.IntegerField()
    running = serializers.IntegerField()
    suspended = serializers.IntegerField()
    cancelling = serializers.IntegerField()
    completed = serializers.IntegerField()
    failed = serializers.IntegerField()
    cancelled = serializers.IntegerField()
    terminal = serializers.IntegerField()
    non_terminal = serializers.IntegerField()
    open_waits = serializers.IntegerField()
    active_hooks = serializers.IntegerField()
    pending_retries = serializers.IntegerField()


class FlowProblemError(Read):
    pointer = serializers.CharField(help_text=_("JSON pointer to what is wrong, empty for the whole."))
    code = serializers.CharField()
    detail = serializers.CharField()


class FlowStanding(Read):
    """The decision that stands."""

    status = serializers.CharField()
    payload = AnyJson()
    resolved_at = Instant(allow_null=True)


class FlowProblem(Read):
    """A refusal, as RFC 9457 has it. Branch on ``code``."""

    type = serializers.CharField()
    title = serializers.CharField()
    status = serializers.IntegerField()
    code = serializers.CharField()
    detail = serializers.CharField()
    errors = FlowProblemError(many=True, required=False)  # type: ignore[assignment]
    standing = FlowStanding(required=False, help_text=_("Of a hook: how it was decided."))
