"""Links from a run to work elsewhere, another run for example."""

from __future__ import annotations

from typing import Self

from django.db import models
from django.utils.translation import gettext_lazy as _

from flow_app.models.keys import text_key
from flow_app.models.run import Run


class ChildOperationQuerySet(models.QuerySet["ChildOperation"]):
    def with_id(self, reference_id: str) -> Self:
        return self.filter(reference_key=text_key(reference_id))

    def to_runs(self) -> Self:
        """Links whose other end is a run too."""
        return self.filter(flow_run_key__isnull=False)


class ChildOperation(models.Model):
    id = models.BigAutoField(primary_key=True)
    run = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="child_operations", db_index=False)
    reference_id = models.CharField(max_length=200)
    reference_key = models.CharField(max_length=64)
    body = models.TextField()
    flow_run_id = models.CharField(max_length=200, null=True)  # noqa: DJ001 - NULL: the other end is no run
    flow_run_key = models.CharField(max_length=64, null=True)  # noqa: DJ001 - as above

    objects = ChildOperationQuerySet.as_manager()

    class Meta:
        verbose_name = _("child operation")
        verbose_name_plural = _("child operations")
        constraints = [models.UniqueConstraint(fields=["run", "reference_key"], name="flow_child_key_uniq")]
        indexes = [models.Index(fields=["flow_run_key"], name="flow_child_run_idx")]

    def __str__(self) -> str:
        return self.reference_id
