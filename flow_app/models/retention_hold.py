"""Holds: reasons why a run must not be deleted."""

from __future__ import annotations

from typing import Self

from django.db import models
from django.utils.translation import gettext_lazy as _

from flow_app.models.keys import text_key
from flow_app.models.run import Run


class RetentionHoldQuerySet(models.QuerySet["RetentionHold"]):
    def with_id(self, hold_id: str) -> Self:
        return self.filter(hold_key=text_key(hold_id))


class RetentionHold(models.Model):
    """One hold. Its id is unique across all runs; a run may have several."""

    id = models.BigAutoField(primary_key=True)
    run = models.ForeignKey(Run, on_delete=models.PROTECT, related_name="retention_holds", db_index=False)
    hold_id = models.CharField(max_length=200)
    hold_key = models.CharField(max_length=64)
    reason = models.TextField()

    objects = RetentionHoldQuerySet.as_manager()

    class Meta:
        verbose_name = _("retention hold")
        verbose_name_plural = _("retention holds")
        constraints = [models.UniqueConstraint(fields=["hold_key"], name="flow_hold_key_uniq")]
        indexes = [models.Index(fields=["run"], name="flow_hold_run_idx")]

    def __str__(self) -> str:
        return self.hold_id
