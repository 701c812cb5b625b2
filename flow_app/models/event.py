"""The log. Rows are written once, by the store; nothing changes them, and only retention removes them."""

from __future__ import annotations

from typing import Any, NoReturn, Self

from django.db import models
from django.utils.translation import gettext_lazy as _

from flow_app.errors import StoreError
from flow_app.models.fields import UtcDateTimeField
from flow_app.models.run import Run


def _refuse(what: str) -> NoReturn:
    raise StoreError(
        f"Events are append-only: {what} is refused. What happened is corrected by what happens next, through the "
        "engine; whole ended runs are removed by retention."
    )


class EventQuerySet(models.QuerySet["Event"]):
    """Reads. Every door that would write is closed."""

    def after(self, sequence: int) -> Self:
        return self.filter(sequence__gt=sequence)

    def update(self, **kwargs: Any) -> NoReturn:
        _refuse("update()")

    async def aupdate(self, **kwargs: Any) -> NoReturn:
        _refuse("aupdate()")

    def delete(self) -> NoReturn:
        _refuse("delete()")

    async def adelete(self) -> NoReturn:
        _refuse("adelete()")

    def _raw_delete(self, using: str | None) -> NoReturn:
        # Django's cascade comes in here, so deleting a run row does not take its history along.
        _refuse("a cascading delete")

    def create(self, **kwargs: Any) -> NoReturn:
        _refuse("create()")

    def bulk_create(self, *args: Any, **kwargs: Any) -> NoReturn:
        _refuse("bulk_create()")

    def bulk_update(self, *args: Any, **kwargs: Any) -> NoReturn:
        _refuse("bulk_update()")

    def get_or_create(self, *args: Any, **kwargs: Any) -> NoReturn:
        _refuse("get_or_create()")

    def update_or_create(self, *args: Any, **kwargs: Any) -> NoReturn:
        _refuse("update_or_create()")

    def _remove(self) -> int:
        """The one door out, for retention alone: it takes whole ended histories and leaves a tombstone."""
        return super()._raw_delete(self.db)


class Event(models.Model):
    """One event of one run. ``payload`` is canonical JSON text and ``digest`` its SHA-256."""

    id = models.BigAutoField(primary_key=True)
    # The statement that inserts events takes the key from the run's row: a constraint would check each one again.
    run = models.ForeignKey(Run, on_delete=models.PROTECT, related_name="events", db_index=False, db_constraint=False)
    sequence = models.BigIntegerField()
    event_id = models.UUIDField()
    type = models.CharField(max_length=40)
    payload = models.TextField()
    digest = models.CharField(max_length=64)
    meta = models.TextField(default="{}")
    recorded_at = UtcDateTimeField()

    objects = EventQuerySet.as_manager()

    class Meta:
        verbose_name = _("event")
        verbose_name_plural = _("events")
        base_manager_name = "objects"
        constraints = [models.UniqueConstraint(fields=["run", "sequence"], name="flow_event_sequence_uniq")]

    def __str__(self) -> str:
        return f"{self.sequence} {self.type}"

    def save(self, *args: Any, **kwargs: Any) -> NoReturn:
        _refuse("save()")

    def save_base(self, *args: Any, **kwargs: Any) -> NoReturn:
        _refuse("save()")

    def delete(self, *args: Any, **kwargs: Any) -> NoReturn:
        _refuse("delete()")

    async def asave(self, *args: Any, **kwargs: Any) -> NoReturn:
        _refuse("asave()")

    async def adelete(self, *args: Any, **kwargs: Any) -> NoReturn:
        _refuse("adelete()")
