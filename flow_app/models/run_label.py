"""Labels of runs, one row each, so that runs can be found by them."""

from __future__ import annotations

from typing import Self

from django.db import models
from django.utils.translation import gettext_lazy as _

from flow_app.models.keys import text_key
from flow_app.models.run import Run


class RunLabelQuerySet(models.QuerySet["RunLabel"]):
    def matching(self, name: str, value: str) -> Self:
        return self.filter(label_key=text_key(name, value))


class RunLabel(models.Model):
    id = models.BigAutoField(primary_key=True)
    run = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="label_rows", db_index=False)
    name = models.CharField(max_length=200)
    name_key = models.CharField(max_length=64)
    value = models.TextField()
    label_key = models.CharField(max_length=64)

    objects = RunLabelQuerySet.as_manager()

    class Meta:
        verbose_name = _("label")
        verbose_name_plural = _("labels")
        constraints = [models.UniqueConstraint(fields=["run", "name_key"], name="flow_label_name_uniq")]
        indexes = [models.Index(fields=["label_key"], name="flow_label_key_idx")]

    def __str__(self) -> str:
        return f"{self.name}={self.value}"
