# ruff: noqa: S608 - the SQL is put together from names in this package; every value is a parameter
"""Retention's side of the store: holds, what a planner asks, and the one deletion of whole histories."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TypeVar

from django.db.models import F, Q
from django.db.utils import Error, IntegrityError

from flow_app.core.events import EVENT_TYPES, EventEnvelope
from flow_app.core.payload import clean_text
from flow_app.core.snapshot import RunStatus
from flow_app.errors import InvalidTransitionError, RunConflictError, RunNotFoundError, StoreError
from flow_app.models import (
    ChildOperation,
    Event,
    Hook,
    Progress,
    RetentionHold,
    Run,
    RunLabel,
    StepExecution,
    Tombstone,
)
from flow_app.models.keys import text_key
from flow_app.models.run import TERMINAL
from flow_app.store import statements
from flow_app.store.records import read_envelopes
from flow_app.store.transactions import Transactions

T = TypeVar("T")

_BATCH = 400  # keys per IN list
_TERMINAL_TYPES = {event.type for event in EVENT_TYPES.values() if event.terminal}


@dataclass(frozen=True, slots=True)
class Hold:
    """A reason why a run must stay."""

    run_id: str
    hold_id: str
    reason: str


@dataclass(frozen=True, slots=True)
class Candidate:
    """What a planner needs to know of one run. ``ended_at`` is when its terminal event was recorded."""

    run_id: str
    is_terminal: bool
    ended_at: datetime | None
    is_held: bool


@dataclass(frozen=True, slots=True)
class Link:
    """A link from a run to another one, which may be gone."""

    run_id: str
    target: str


class RetentionStore(Transactions):
    """Works on the tables of a :class:`~flow_app.store.orm.DjangoEventStore` of the same alias."""

    # --- holds --------------------------------------------------------------------------------------------------------

    def hold(self, run_id: str, hold_id: str, *, reason: str) -> None:
        """Keep a run. The same again changes nothing.

        Raises InvalidTransitionError for a blank text, RunNotFoundError, and RunConflictError when the run is deleted
        or the hold stands on another run or with another reason.
        """
        wanted = Hold(run_id, _text(hold_id, what="hold id", limit=200), _text(reason, what="hold reason"))
        key = self._key_of(_text(run_id, what="run id", limit=200))
        try:
            with self.atomic():
                known = self._hold(hold_id)
                if known is None:
                    self._share(key, run_id)
                    row = {"run_id": key, "hold_id": hold_id, "hold_key": text_key(hold_id), "reason": reason}
                    RetentionHold.objects.using(self.using).create(**row)
        except IntegrityError:
            known = self._hold(hold_id)  # somebody else was faster
        if known not in (None, wanted):
            raise RunConflictError(run_id, f"hold {hold_id!r} stands with another reason or on another run")

    def release(self, hold_id: str) -> bool:
        """Take a hold away; False when there is none."""
        deleted, _by_model = RetentionHold.objects.using(self.using).with_id(hold_id).delete()
        return deleted > 0

    def holds(self, run_id: str | None = None) -> list[Hold]:
        """All holds, or those of one run, by hold id."""
        rows = RetentionHold.objects.using(self.using).select_related("run")
        if run_id is not None:
            rows = rows.filter(run__run_key=text_key(run_id))
        found = [Hold(row.run.run_id, row.hold_id, row.reason) for row in rows]
        return sorted(found, key=lambda hold: hold.hold_id)

    def _hold(self, hold_id: str) -> Hold | None:
        row = RetentionHold.objects.using(self.using).select_related("run").with_id(hold_id).first()
        return None if row is None else Hold(row.run.run_id, row.hold_id, row.reason)

    # --- for a planner ------------------------------------------------------------------------------------------------

    def candidates(self) -> Iterator[Candidate]:
        """Every run, in no order. Raises StoreError for an ended run without a terminal event at its end."""
        held = set(RetentionHold.objects.using(self.using).values_list("run_id", flat=True))
        last = Event.objects.using(self.using).filter(run__status__in=TERMINAL, sequence=F("run__last_sequence"))
        ends = {
            key: at for key, kind, at in last.values_list("run_id", "type", "recorded_at") if kind in _TERMINAL_TYPES
        }
        for key, run_id, status in Run.objects.using(self.using).values_list("id", "run_id", "status"):
            terminal = RunStatus(status).is_terminal
            if terminal and key not in ends:
                raise StoreError(f"Run {run_id!r} is {status}, but its history does not end that way.")
            yield Candidate(run_id, terminal, ends.get(key), key in held)

    def links(self) -> list[Link]:
        """Every link from run to run."""
        rows = ChildOperation.objects.using(self.using).to_runs().values_list("run__run_id", "flow_run_id")
        return [Link(run_id, target) for run_id, target in rows if target is not None]

    # --- deletion -----------------------------------------------------------------------------------------------------

    def delete_runs(self, run_ids: Iterable[str], *, now: datetime) -> list[str]:
        """Delete ended runs with their histories and leave a tombstone of each, all of them or none.

        Raises RunConflictError when one of them is open, held or linked with a run that stays, RunNotFoundError, and
        StoreError when the database refuses: then nothing is deleted.
        """
        wanted = sorted(set(run_ids))
        try:
            with self.atomic():
                keys = self._lock_ended(wanted)
                self._refuse_held(keys)
                self._refuse_linked(keys)
                for run_id in wanted:
                    self._bury(run_id, keys[run_id], now=now)
                for batch in batches(list(keys.values()), _BATCH):
                    self._remove(batch)
        except Error as error:
            raise StoreError(f"The database refused to delete runs, and none was deleted: {error}") from error
        return wanted

    def _lock_ended(self, run_ids: Sequence[str]) -> dict[str, int]:
        """Row keys by run id. The rows are locked, so nobody links to them, or holds them, any more."""
        keys: dict[str, int] = {}
        sql = f"SELECT id, status FROM {statements.RUN} WHERE run_key = %s{self.dialect.for_update}"
        for run_id in run_ids:
            found = self.fetch(sql, (text_key(run_id),))
            if not found:
                raise RunNotFoundError(run_id)
            if not RunStatus(found[0][1]).is_terminal:
                raise RunConflictError(run_id, "it has not ended")
            keys[run_id] = found[0][0]
        return keys

    def _refuse_held(self, keys: dict[str, int]) -> None:
        for batch in batches(list(keys.values()), _BATCH):
            row = RetentionHold.objects.using(self.using).filter(run_id__in=batch).select_related("run").first()
            if row is not None:
                raise RunConflictError(row.run.run_id, f"hold {row.hold_id!r} keeps it")

    def _refuse_linked(self, keys: dict[str, int]) -> None:
        """Links that came after the plan was made."""
        going = set(keys)
        for batch in batches(list(keys.items()), _BATCH // 2):
            ours = Q(run_id__in=[key for _run_id, key in batch])
            theirs = Q(flow_run_key__in=[text_key(run_id) for run_id, _key in batch])
            links = ChildOperation.objects.using(self.using).to_runs().filter(ours | theirs)
            for run_id, target in links.values_list("run__run_id", "flow_run_id"):
                if run_id not in going or target not in going:
                    staying = target if run_id in going else run_id
                    raise RunConflictError(run_id, f"its link to {target!r} leads out of what is deleted: {staying!r}")

    def _bury(self, run_id: str, key: int, *, now: datetime) -> None:
        sql = statements.select_events(self.dialect, whole=True, suffix=self.latest)
        envelopes = read_envelopes(run_id, self.fetch(sql, (key, 0)))
        last = envelopes[-1]
        Tombstone.objects.using(self.using).create(
            run_id=run_id,
            run_key=text_key(run_id),
            deleted_at=now,
            terminal_sequence=last.sequence,
            terminal_event_id=last.event_id,
            terminal_key=last.key,
            history_digest=history_digest(envelopes),
        )

    def _remove(self, keys: Sequence[int]) -> None:
        Event.objects.using(self.using).filter(run_id__in=keys)._remove()
        for model in (Hook, Progress, ChildOperation, RunLabel, StepExecution):
            rows = model._base_manager.using(self.using).filter(run_id__in=keys)
            rows._raw_delete(self.using)
        Run.objects.using(self.using).filter(id__in=keys)._raw_delete(self.using)

    # --- shared -------------------------------------------------------------------------------------------------------

    def _key_of(self, run_id: str) -> int:
        key = Run.objects.using(self.using).with_id(run_id).values_list("id", flat=True).first()
        if key is None:
            if Tombstone.objects.using(self.using).with_id(run_id).exists():
                raise RunConflictError(run_id, "it was deleted by retention")
            raise RunNotFoundError(run_id)
        return key

    def _share(self, key: int, run_id: str) -> None:
        """Keep the run from being deleted until this transaction ends."""
        sql = f"SELECT 1 FROM {statements.RUN} WHERE id = %s{self.dialect.for_share}"
        if not self.fetch(sql, (key,)):
            raise RunConflictError(run_id, "it was deleted by retention")


def history_digest(envelopes: Sequence[EventEnvelope]) -> str:
    """SHA-256, in hex, of the JSON array of all envelopes in their wire form, in canonical text."""
    wire = [envelope.to_wire() for envelope in envelopes]
    text = json.dumps(wire, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode("ascii")).hexdigest()


def batches(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    for start in range(0, len(items), size):
        yield items[start : start + size]


def _text(value: str, *, what: str, limit: int | None = None) -> str:
    if not isinstance(value, str) or not value.strip():
        raise InvalidTransitionError(f"{what} is blank")
    if clean_text(value) != value:
        raise InvalidTransitionError(f"{what} has a NUL or a lone surrogate")
    if limit is not None and len(value) > limit:
        raise InvalidTransitionError(f"{what} has {len(value)} characters, more than {limit}")
    return value
