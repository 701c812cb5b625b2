"""What belongs to a run: events, what it waits for, progress, links."""

from __future__ import annotations

import json
from typing import Any

from django.utils.translation import gettext_lazy as _
from rest_framework import serializers

from flow_app.api.fields import AnyJson, Instant, Text, plain, shown
from flow_app.api.schema import field_of
from flow_app.api.serializers.base import Read
from flow_app.models import ChildOperation, Event, Progress
from flow_app.presenting import mask_token
from flow_app.presenting.tracebacks import TRACEBACK, text_of


class FlowEvent(Read):
    """One event. ``data`` is null, and ``meta`` has no ``traceback``, unless ``include=payload`` asks for them."""

    sequence = serializers.IntegerField()
    event_id = serializers.UUIDField()
    type = serializers.CharField()
    recorded_at = Instant()
    meta = serializers.SerializerMethodField(help_text=_("Who or what caused it; of a failed attempt its `traceback`."))
    data = serializers.SerializerMethodField()  # type: ignore[assignment]

    def get_meta(self, event: Event) -> dict[str, Any]:
        stored = json.loads(event.meta)
        traceback = self.reveal_traceback(text_of(stored.pop(TRACEBACK, None)))
        meta: dict[str, Any] = shown(stored)
        return {**meta, TRACEBACK: traceback} if traceback else meta

    @field_of(AnyJson())
    def get_data(self, event: Event) -> Any:
        if not self.context.get("payloads"):
            return None
        data = plain(event.payload)
        if event.type == "hook_created":
            data["token"] = mask_token(str(data.get("token")))
        return self.reveal(data)


class FlowSuspension(Read):
    """Something that a run waits for."""

    kind = serializers.CharField(help_text=_("wait, hook or retry."))
    subject_id = Text(help_text=_("The id of the wait, the hook or the step."))
    due_at = Instant(allow_null=True)
    is_due = serializers.BooleanField()


class FlowProgress(Read):
    """One progress record. ``details`` is null unless ``include=payload`` asks for it."""

    progress_id = Text()
    sequence = serializers.IntegerField(help_text=_("The number of its event."))
    completed = serializers.SerializerMethodField()
    total = serializers.SerializerMethodField()
    message = serializers.SerializerMethodField()
    details = serializers.SerializerMethodField()

    def get_completed(self, row: Progress) -> int:
        completed: int = plain(row.body)["completed"]
        return completed

    def get_total(self, row: Progress) -> int | None:
        return plain(row.body).get("total")  # type: ignore[no-any-return]

    def get_message(self, row: Progress) -> str | None:
        return plain(row.body).get("message")  # type: ignore[no-any-return]

    @field_of(AnyJson())
    def get_details(self, row: Progress) -> Any:
        return self.reveal(plain(row.body).get("details"))


class FlowChildOperation(Read):
    """A link to work elsewhere. ``metadata`` is null unless ``include=payload`` asks for it."""

    reference_id = Text()
    kind = serializers.SerializerMethodField()
    operation_id = serializers.SerializerMethodField()
    flow_run_id = serializers.SerializerMethodField(help_text=_("The run that it links to, if that is yours to see."))
    metadata = serializers.SerializerMethodField()

    def get_kind(self, row: ChildOperation) -> str:
        return str(plain(row.body)["kind"])

    def get_operation_id(self, row: ChildOperation) -> str:
        return str(plain(row.body)["operation_id"])

    def get_flow_run_id(self, row: ChildOperation) -> str | None:
        """Hidden, unless the queryset or the view says that the run is for the caller to see."""
        shows = getattr(row, "shows_target", False) or self.context.get("shows_target", False)
        return row.flow_run_id if shows else None

    @field_of(AnyJson())
    def get_metadata(self, row: ChildOperation) -> Any:
        return self.reveal(plain(row.body).get("metadata"))
