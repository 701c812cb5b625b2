"""Hooks, as the log left them."""

from __future__ import annotations

from datetime import datetime
from typing import Self

from django.db import models
from django.utils.translation import gettext_lazy as _

from flow_app.core.payload import Payload, clean_text
from flow_app.core.snapshot import HookStatus
from flow_app.models.fields import UtcDateTimeField
from flow_app.models.keys import text_key
from flow_app.models.run import OPEN, Run


def kind_of(metadata: Payload) -> str:
    """What kind of hook it is, as the metadata says; "" for metadata in a form of the workflow's own."""
    kind = metadata.tree.get("kind") if isinstance(metadata.tree, dict) else None
    return clean_text(kind, limit=200) if isinstance(kind, str) else ""


class HookQuerySet(models.QuerySet["Hook"]):
    def active(self) -> Self:
        """Hooks that can be answered: active, of an open run."""
        return self.filter(status=HookStatus.ACTIVE.value, run__status__in=OPEN)

    def with_id(self, hook_id: str) -> Self:
        return self.filter(hook_key=text_key(hook_id))

    def with_token(self, token_digest: str) -> Self:
        return self.filter(active_token_digest=token_digest)

    def with_runs(self) -> Self:
        """Each with its run in the same query, as runs are read: without the traceback."""
        return self.select_related("run").defer("run__blocked_traceback")

    def due(self, now: datetime) -> Self:
        return self.active().filter(expires_at__lte=now)


class Hook(models.Model):
    """One hook of one run.

    ``active_token_digest`` is unique and NULL once the hook is closed: a unique constraint on active hooks that every
    database keeps, conditional ones being ignored by some.
    """

    id = models.BigAutoField(primary_key=True)
    run = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="hooks", db_index=False)
    hook_id = models.CharField(_("hook id"), max_length=200)
    hook_key = models.CharField(max_length=64)
    token_digest = models.CharField(max_length=80)
    active_token_digest = models.CharField(max_length=80, null=True)  # noqa: DJ001 - see above
    metadata = models.TextField()
    kind = models.CharField(max_length=200, default="", db_default="")  # as in Run, of columns that came later
    created_at = UtcDateTimeField(null=True)
    expires_at = UtcDateTimeField(null=True)
    status = models.CharField(max_length=20)
    received = models.TextField(null=True)  # noqa: DJ001 - NULL: nothing received
    resolved_at = UtcDateTimeField(null=True)
    resolved_by = models.TextField(default="")

    objects = HookQuerySet.as_manager()

    class Meta:
        verbose_name = _("hook")
        verbose_name_plural = _("hooks")
        constraints = [
            models.UniqueConstraint(fields=["run", "hook_key"], name="flow_hook_key_uniq"),
            models.UniqueConstraint(fields=["active_token_digest"], name="flow_hook_token_uniq"),
        ]
        indexes = [
            models.Index(fields=["status", "id"], name="flow_hook_status_idx"),
            models.Index(fields=["token_digest", "id"], name="flow_hook_digest_idx"),  # closed ones, too
        ]

    def __str__(self) -> str:
        return self.hook_id
