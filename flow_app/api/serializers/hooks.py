"""Hooks."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.utils.translation import gettext_lazy as _
from rest_framework import serializers

from flow_app.api.fields import AnyJson, Instant, Text, plain
from flow_app.api.links import link
from flow_app.api.schema import field_of
from flow_app.api.serializers.base import Read
from flow_app.core.snapshot import HookStatus
from flow_app.models import Hook
from flow_app.presenting import mask_token


class FlowHook(Read):
    """A hook, as those who may answer it see it."""

    run_id = serializers.CharField(source="run.run_id")
    hook_id = Text()
    status = serializers.SerializerMethodField(
        help_text=_("active; or closed: received, disposed, expired, cancelled.")
    )
    kind = serializers.SerializerMethodField()
    subject = serializers.SerializerMethodField()
    labels = serializers.SerializerMethodField()
    payload_schema = serializers.SerializerMethodField(help_text=_("JSON Schema of its answer, if it declares one."))
    created_at = Instant(allow_null=True, help_text=_("Since when it waits, as far as that was kept."))
    expires_at = Instant(allow_null=True)
    resolved_at = Instant(allow_null=True)

    def get_status(self, hook: Hook) -> str:
        return standing_status(hook, now=self.now)

    def get_kind(self, hook: Hook) -> str:
        return _text(metadata_of(hook).get("kind"))

    def get_subject(self, hook: Hook) -> str:
        return _text(metadata_of(hook).get("subject"))

    def get_labels(self, hook: Hook) -> dict[str, str]:
        labels = metadata_of(hook).get("labels")
        return {name: _text(value) for name, value in labels.items()} if isinstance(labels, dict) else {}

    @field_of(AnyJson())
    def get_payload_schema(self, hook: Hook) -> Any:
        return metadata_of(hook).get("payload_schema")


class FlowHookDetail(FlowHook):
    """A hook with its run and, if ``include=payload`` asks for them, its other metadata and its answer."""

    url = serializers.SerializerMethodField()
    token = serializers.SerializerMethodField(help_text=_("Enough of the token's digest to tell two apart."))
    resolved_by = Text()
    metadata = serializers.SerializerMethodField()
    received = serializers.SerializerMethodField()

    def get_url(self, hook: Hook) -> str:
        return link(self.context["request"], "hook", run_id=hook.run.run_id, hook_id=hook.hook_id)

    def get_token(self, hook: Hook) -> str:
        return mask_token(hook.token_digest)

    @field_of(AnyJson())
    def get_metadata(self, hook: Hook) -> Any:
        return self.reveal(plain(hook.metadata))

    @field_of(AnyJson())
    def get_received(self, hook: Hook) -> Any:
        return self.reveal(plain(hook.received))


def metadata_of(hook: Hook) -> dict[str, Any]:
    """What the hook is for; {} for metadata in a form of the workflow's own."""
    metadata = plain(hook.metadata)
    return metadata if isinstance(metadata, dict) else {}


def standing_status(hook: Hook, *, now: datetime) -> str:
    """The hook's status. One whose deadline has passed takes no answer, though nobody has written that down yet."""
    late = hook.status == HookStatus.ACTIVE.value and hook.expires_at is not None and hook.expires_at <= now
    return HookStatus.EXPIRED.value if late else hook.status


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""
