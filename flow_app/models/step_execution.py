"""Steps that run in a message of their own, on any worker."""

from __future__ import annotations

from datetime import datetime
from typing import Self

from django.db import models
from django.utils.translation import gettext_lazy as _

from flow_app.models.fields import UtcDateTimeField
from flow_app.models.run import Run


class StepExecutionQuerySet(models.QuerySet["StepExecution"]):
    def due(self, now: datetime) -> Self:
        return self.filter(wake_at__lte=now)


class StepExecution(models.Model):
    """One attempt of a step that was sent to the workers. Deleted by whoever appends its outcome, or closes the run.

    ``wake_at``: when the scheduler must look at it, because a message may be lost, a worker dead, or the time over.
    """

    id = models.BigAutoField(primary_key=True)
    run = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="step_executions", db_index=False)
    step_id = models.CharField(max_length=200)
    step_key = models.CharField(max_length=64)
    attempt = models.BigIntegerField()
    step_name = models.CharField(max_length=200)
    input = models.TextField()
    retry = models.TextField()
    spec = models.TextField()
    queue = models.CharField(max_length=200, null=True)  # noqa: DJ001 - NULL: the queue of the run's build
    timeout_ms = models.BigIntegerField(null=True)

    fencing_token = models.CharField(max_length=64, default="")
    worker = models.CharField(max_length=200, default="")
    lease_expires_at = UtcDateTimeField(null=True)
    times_out_at = UtcDateTimeField(null=True)
    deliveries = models.IntegerField(default=0)
    late = models.BooleanField(default=False)
    wake_at = UtcDateTimeField(null=True)
    dispatches = models.IntegerField(default=0)

    objects = StepExecutionQuerySet.as_manager()

    class Meta:
        verbose_name = _("step execution")
        verbose_name_plural = _("step executions")
        constraints = [models.UniqueConstraint(fields=["run", "step_key"], name="flow_execution_step_uniq")]
        indexes = [models.Index(fields=["wake_at", "id"], name="flow_execution_wake_idx")]

    def __str__(self) -> str:
        return self.step_id
