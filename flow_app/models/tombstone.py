"""What remains of a deleted run: its id stays taken, and a digest proves what its history was."""

from __future__ import annotations

from typing import Self

from django.db import models
from django.utils.translation import gettext_lazy as _

from flow_app.models.fields import UtcDateTimeField
from flow_app.models.keys import text_key


class TombstoneQuerySet(models.QuerySet["Tombstone"]):
    def with_id(self, run_id: str) -> Self:
        return self.filter(run_key=text_key(run_id))


class Tombstone(models.Model):
    """``history_digest`` is the SHA-256 of the JSON array of all the run's envelopes, in their wire form."""

    id = models.BigAutoField(primary_key=True)
    run_id = models.CharField(max_length=200)
    run_key = models.CharField(max_length=64)
    deleted_at = UtcDateTimeField()
    terminal_sequence = models.BigIntegerField()
    terminal_event_id = models.UUIDField()
    terminal_key = models.CharField(max_length=40)
    history_digest = models.CharField(max_length=64)

    objects = TombstoneQuerySet.as_manager()

    class Meta:
        verbose_name = _("tombstone")
        verbose_name_plural = _("tombstones")
        constraints = [models.UniqueConstraint(fields=["run_key"], name="flow_tombstone_key_uniq")]

    def __str__(self) -> str:
        return self.run_id
