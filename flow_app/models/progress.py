"""Progress records, one row each."""

from __future__ import annotations

from typing import Self

from django.db import models
from django.utils.translation import gettext_lazy as _

from flow_app.models.keys import text_key
from flow_app.models.run import Run


class ProgressQuerySet(models.QuerySet["Progress"]):
    def with_id(self, progress_id: str) -> Self:
        return self.filter(progress_key=text_key(progress_id))


class Progress(models.Model):
    id = models.BigAutoField(primary_key=True)
    run = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="progress_rows", db_index=False)
    progress_id = models.CharField(max_length=200)
    progress_key = models.CharField(max_length=64)
    body = models.TextField()
    sequence = models.BigIntegerField()

    objects = ProgressQuerySet.as_manager()

    class Meta:
        verbose_name = _("progress record")
        verbose_name_plural = _("progress records")
        constraints = [models.UniqueConstraint(fields=["run", "progress_key"], name="flow_progress_key_uniq")]

    def __str__(self) -> str:
        return self.progress_id
