"""Events refuse every change, at every door."""

from __future__ import annotations

from uuid import uuid4

import pytest
from asgiref.sync import async_to_sync
from django.db import connection

from flow_app.errors import StoreError
from flow_app.models import Event, Run
from flow_app.store import DjangoEventStore
from tests.store.support import begin

pytestmark = pytest.mark.django_db


@pytest.fixture
def event() -> Event:
    begin(DjangoEventStore())
    return Event.objects.order_by("sequence")[0]


DOORS = {
    "save": lambda event: event.save(),
    "save some fields": lambda event: event.save(update_fields=["type"]),
    "save_base": lambda event: event.save_base(),
    "insert by save": lambda event: Event(run_id=event.run_id, sequence=99, event_id=uuid4(), type="x").save(),
    "delete": lambda event: event.delete(),
    "queryset update": lambda event: Event.objects.all().update(type="x"),
    "queryset delete": lambda event: Event.objects.filter(sequence=1).delete(),
    "raw delete": lambda event: Event.objects.all()._raw_delete("default"),
    "create": lambda event: Event.objects.create(run_id=event.run_id, sequence=99, event_id=uuid4(), type="x"),
    "get_or_create": lambda event: Event.objects.get_or_create(sequence=99),
    "update_or_create": lambda event: Event.objects.update_or_create(sequence=1, defaults={"type": "x"}),
    "bulk_create": lambda event: Event.objects.bulk_create([event]),
    "bulk_update": lambda event: Event.objects.bulk_update([event], ["type"]),
    "base manager update": lambda event: Event._base_manager.update(type="x"),
    "base manager delete": lambda event: Event._base_manager.all().delete(),
    "related update": lambda event: event.run.events.update(type="x"),
    "related delete": lambda event: event.run.events.all().delete(),
    "related create": lambda event: event.run.events.create(sequence=99, event_id=uuid4(), type="x"),
    "related add": lambda event: event.run.events.add(event),
}


@pytest.mark.parametrize("door", DOORS)
def test_an_event_refuses(event, door):
    before = list(Event.objects.order_by("id").values())
    with pytest.raises(StoreError, match="append-only"):
        DOORS[door](event)
    assert list(Event.objects.order_by("id").values()) == before


def test_deleting_a_run_does_not_take_its_history_along(event):
    with pytest.raises(Exception, match="protected"):
        Run.objects.all().delete()
    assert Event.objects.count() == 2


@pytest.mark.parametrize("door", ["asave", "adelete", "aupdate", "queryset adelete"])
def test_an_event_refuses_asynchronously(event, door):
    acts = {
        "asave": lambda: event.asave(),
        "adelete": lambda: event.adelete(),
        "aupdate": lambda: Event.objects.aupdate(type="x"),
        "queryset adelete": lambda: Event.objects.all().adelete(),
    }

    async def knock() -> None:
        with pytest.raises(StoreError, match="append-only"):
            await acts[door]()

    async_to_sync(knock)()


def test_a_row_that_was_changed_behind_its_back_is_noticed(event):
    with connection.cursor() as cursor:
        cursor.execute("UPDATE flow_app_event SET payload = %s WHERE id = %s", ['{"forged":1}', event.id])
    with pytest.raises(StoreError, match="does not match its digest"):
        DjangoEventStore().history("r1")
