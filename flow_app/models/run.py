"""The run: a projection of its log, plus what is not history - its lease and its wake-up."""

from __future__ import annotations

from datetime import datetime
from typing import Self, cast

from django.db import models
from django.db.models import Q
from django.utils.translation import gettext_lazy as _

from flow_app.core.ports import WakeReason
from flow_app.core.snapshot import RunStatus
from flow_app.models.fields import UtcDateTimeField
from flow_app.models.keys import text_key

OPEN = tuple(status.value for status in RunStatus if not status.is_terminal)
TERMINAL = tuple(status.value for status in RunStatus if status.is_terminal)


def _only_set(field: str, *, name: str) -> models.Index:
    """An index of the runs in which the field is set."""
    return models.Index(fields=[field], name=name, condition=Q(**{f"{field}__isnull": False}))


class RunQuerySet(models.QuerySet["Run"]):
    def with_id(self, run_id: str) -> Self:
        return self.filter(run_key=text_key(run_id))

    def open(self) -> Self:
        return self.filter(status__in=OPEN)

    def ended(self) -> Self:
        return self.filter(status__in=TERMINAL)

    def due(self, now: datetime) -> Self:
        """Somebody must look at them now, whatever the reason."""
        return self.filter(wake_at__lte=now)

    def timer_due(self, now: datetime) -> Self:
        """A paused run's timers keep their time and do not fire."""
        return self.open().awake().filter(timer_at__lte=now)

    def paused(self) -> Self:
        return self.filter(paused_at__isnull=False)

    def awake(self) -> Self:
        return self.filter(paused_at__isnull=True)

    def suspended(self) -> Self:
        """Open, with a wait, a hook or a delayed retry open."""
        return self.open().filter(Q(open_waits__gt=0) | Q(active_hooks__gt=0) | Q(pending_retries__gt=0))

    def leased(self, now: datetime) -> Self:
        return self.filter(lease_expires_at__gt=now)

    def blocked(self) -> Self:
        return self.open().filter(blocked_since__isnull=False)

    def about(self, subject: str) -> Self:
        """Runs of one business object."""
        return self.filter(subject=subject)

    def labelled(self, name: str, value: str) -> Self:
        return self.filter(label_rows__label_key=text_key(name, value))


_Runs = models.Manager.from_queryset(RunQuerySet)


class RunManager(_Runs["Run"]):
    """Rows without the traceback, which is long, and read by few: asking a run for it reads it then."""

    def get_queryset(self) -> RunQuerySet:
        return cast(RunQuerySet, super().get_queryset()).defer("blocked_traceback")


class Run(models.Model):
    """One run of a workflow.

    Appends between two steps change ``last_sequence``, ``lease_expires_at`` and ``lost_leases`` only. None of them is
    indexed, so PostgreSQL rewrites no index for them (HOT updates).

    A column that came later has a default in the database, too: workers of the version before do not know it, and they
    insert runs until the last of them has ended.
    """

    id = models.BigAutoField(primary_key=True)
    run_id = models.CharField(_("run id"), max_length=200)
    run_key = models.CharField(max_length=64)
    workflow = models.CharField(max_length=200)
    version = models.CharField(max_length=200)
    build = models.CharField(max_length=200, null=True)  # noqa: DJ001 - NULL: pinned to none
    subject = models.CharField(max_length=200, default="")
    labels = models.TextField(default="{}")

    status = models.CharField(max_length=20)
    outcome = models.CharField(max_length=20, default="")
    error = models.TextField(default="")
    last_sequence = models.BigIntegerField()
    open_waits = models.IntegerField(default=0)
    active_hooks = models.IntegerField(default=0)
    pending_retries = models.IntegerField(default=0)
    timer_at = UtcDateTimeField(null=True)

    wake_at = UtcDateTimeField(null=True)
    wake_reason = models.CharField(max_length=20, default=WakeReason.RUNNABLE.value)
    dispatches = models.IntegerField(default=0)

    lease_epoch = models.BigIntegerField(default=0)
    lease_expires_at = UtcDateTimeField(null=True)
    lost_leases = models.IntegerField(default=0)

    steps_out = models.IntegerField(default=0, db_default=0)
    steps_awaited = models.CharField(max_length=3, default="", db_default="")

    paused_at = UtcDateTimeField(null=True)
    paused_by = models.CharField(max_length=200, default="", db_default="")

    blocked_code = models.CharField(max_length=100, default="")
    blocked_text = models.TextField(default="")
    blocked_traceback = models.TextField(default="", db_default="")
    blocked_since = UtcDateTimeField(null=True)
    blocked_count = models.IntegerField(default=0)

    progress_completed = models.BigIntegerField(null=True)
    progress_total = models.BigIntegerField(null=True)
    progress_message = models.TextField(default="")

    created_at = UtcDateTimeField(_("started"))
    finished_at = UtcDateTimeField(_("ended"), null=True)

    objects = RunManager()

    class Meta:
        verbose_name = _("run")
        verbose_name_plural = _("runs")
        # What people may do to a run, each on its own; looking is Django's view_run and view_hook.
        permissions = [
            ("start_run", "Can start runs"),
            ("resume_hook", "Can answer and withdraw hooks"),
            ("cancel_run", "Can ask runs to cancel"),
            ("terminate_run", "Can end runs at once, without clean-up"),
            ("operate_run", "Can pause runs, let them go on, and run them now"),
            ("view_payload", "Can see inputs, outputs and other payloads"),
        ]
        constraints = [
            models.UniqueConstraint(fields=["run_key"], name="flow_run_key_uniq"),
            models.CheckConstraint(condition=Q(status__in=[*OPEN, *TERMINAL]), name="flow_run_status_check"),
        ]
        indexes = [
            models.Index(fields=["wake_at", "id"], name="flow_run_wake_idx"),
            models.Index(fields=["timer_at"], name="flow_run_timer_idx"),
            models.Index(fields=["subject"], name="flow_run_subject_idx"),
            # What people ask for: by status, version or build and newest first, by workflow, by dates, by prefix of id.
            models.Index(fields=["status", "id"], name="flow_run_status_idx"),
            models.Index(fields=["workflow", "version", "id"], name="flow_run_workflow_id_idx"),
            models.Index(fields=["version", "id"], name="flow_run_version_idx"),
            models.Index(fields=["build", "id"], name="flow_run_build_idx"),
            models.Index(fields=["created_at"], name="flow_run_created_idx"),
            # PostgreSQL writes every full index anew when a wake-up moves; these three then cost the runs that are in
            # them. MariaDB ignores the conditions, and writes an index when its own columns change.
            _only_set("finished_at", name="flow_run_ended_idx"),
            _only_set("blocked_since", name="flow_run_stuck_idx"),
            _only_set("paused_at", name="flow_run_paused_idx"),
            models.Index(fields=["run_id"], name="flow_run_prefix_idx", opclasses=["varchar_pattern_ops"]),
        ]

    def __str__(self) -> str:
        return self.run_id
