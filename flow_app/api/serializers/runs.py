"""Runs."""

from __future__ import annotations

import json
from typing import Any

from django.utils.translation import gettext_lazy as _
from rest_framework import serializers

from flow_app.api.fields import AnyJson, Instant, Text, plain_tree, shown
from flow_app.api.links import link
from flow_app.api.schema import field_of
from flow_app.api.serializers.base import Read
from flow_app.core.payload import clean_text
from flow_app.models import Run
from flow_app.presenting import headline, is_overdue, why

_LINE = 1000


class FlowBlocked(Read):
    code = serializers.CharField(help_text=_("The stable code of the error that stops it."))
    text = Text()
    since = Instant(allow_null=True)
    count = serializers.IntegerField(help_text=_("How often it was tried."))


class FlowBar(Read):
    completed = serializers.IntegerField()
    total = serializers.IntegerField(allow_null=True)
    message = Text()


class FlowRun(Read):
    """A run, as lists show it."""

    url = serializers.SerializerMethodField()
    run_id = serializers.CharField()
    workflow = Text()
    version = Text()
    build = Text(allow_null=True, help_text=_("The build it is pinned to."))
    subject = Text()
    labels = serializers.SerializerMethodField()
    status = serializers.CharField(
        help_text=_("pending, running, suspended, cancelling; or, when it has ended, completed, failed, cancelled.")
    )
    outcome = serializers.CharField(
        help_text=_("How it ended: completed, failed, cancelled, timed_out, retry_exhausted, host_shutdown; or empty.")
    )
    headline = serializers.SerializerMethodField(help_text=_("What it is doing, in a sentence for people."))
    why = serializers.SerializerMethodField(help_text=_("What would move it on, in a sentence for people."))
    error = serializers.SerializerMethodField()
    wake_reason = serializers.CharField(help_text=_("What it waits for."))
    wake_at = Instant(allow_null=True, help_text=_("When it is looked at again if nothing else happens."))
    is_overdue = serializers.SerializerMethodField()
    open_waits = serializers.IntegerField()
    active_hooks = serializers.IntegerField()
    pending_retries = serializers.IntegerField()
    steps_out = serializers.IntegerField(help_text=_("Steps that are with the workers."))
    blocked = serializers.SerializerMethodField()
    paused_at = Instant(allow_null=True)
    paused_by = Text(help_text=_("Who paused it, if that was said."))
    progress = serializers.SerializerMethodField(help_text=_("The latest progress."))
    last_sequence = serializers.IntegerField(help_text=_("The number of its last event."))
    created_at = Instant()
    finished_at = Instant(allow_null=True)

    def get_url(self, run: Run) -> str:
        return link(self.context["request"], "run", run_id=run.run_id)

    def get_labels(self, run: Run) -> dict[str, str]:
        labels: dict[str, str] = shown(json.loads(run.labels))
        return labels

    def get_headline(self, run: Run) -> str:
        return headline(run, self.context["waiting"].get(run.pk), now=self.now)

    def get_why(self, run: Run) -> str:
        return why(run, self.context["waiting"].get(run.pk), now=self.now)

    def get_error(self, run: Run) -> str:
        return clean_text(run.error, limit=_LINE)

    def get_is_overdue(self, run: Run) -> bool:
        return is_overdue(run, now=self.now)

    @field_of(FlowBlocked(allow_null=True))
    def get_blocked(self, run: Run) -> dict[str, Any] | None:
        if not run.blocked_code:
            return None
        values = {"text": run.blocked_text, "since": run.blocked_since, "count": run.blocked_count}
        return dict(FlowBlocked({"code": run.blocked_code, **values}).data)

    @field_of(FlowBar(allow_null=True))
    def get_progress(self, run: Run) -> dict[str, Any] | None:
        if run.progress_completed is None:
            return None
        values = {"completed": run.progress_completed, "total": run.progress_total, "message": run.progress_message}
        return dict(FlowBar(values).data)


_LINKS = ("events", "suspensions", "hooks", "progress", "children")
_VERBS = ("cancel", "force_cancel", "terminate", "pause", "unpause", "run_now")


class FlowRunDetail(FlowRun):
    """A run by itself. ``input``, ``output`` and ``traceback`` are null unless ``include=payload`` asks for them."""

    links = serializers.SerializerMethodField(help_text=_("Addresses of what belongs to it, and of its verbs."))
    input = serializers.SerializerMethodField()
    output = serializers.SerializerMethodField()
    traceback = serializers.SerializerMethodField(
        help_text=_("Where the code failed that blocks the run or ended it; null when nothing was recorded.")
    )

    def get_error(self, run: Run) -> str:
        return clean_text(run.error)

    def get_links(self, run: Run) -> dict[str, str]:
        request = self.context["request"]
        return {name: link(request, f"run-{name.replace('_', '-')}", run_id=run.run_id) for name in (*_LINKS, *_VERBS)}

    @field_of(AnyJson())
    def get_input(self, run: Run) -> Any:
        return self.reveal(plain_tree(self.context["ends"].get("input")))

    @field_of(AnyJson())
    def get_output(self, run: Run) -> Any:
        return self.reveal(plain_tree(self.context["ends"].get("output")))

    def get_traceback(self, run: Run) -> str | None:
        return self.reveal_traceback(self.context["traceback"]) or None
