"""Retention: which ended runs may go, and letting them go.

Whole histories are deleted or none of them. Runs that are linked go together or stay together.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from flow_app.core import instants


class Candidate(Protocol):
    """A run, as the planner sees it."""

    @property
    def run_id(self) -> str: ...
    @property
    def is_terminal(self) -> bool: ...
    @property
    def ended_at(self) -> datetime | None: ...
    @property
    def is_held(self) -> bool: ...


class Link(Protocol):
    """A run's link to another one."""

    @property
    def run_id(self) -> str: ...
    @property
    def target(self) -> str: ...


class Hold(Protocol):
    """A reason why a run must stay."""

    @property
    def run_id(self) -> str: ...
    @property
    def hold_id(self) -> str: ...
    @property
    def reason(self) -> str: ...


class RetentionStore(Protocol):
    """What retention needs of a store."""

    def hold(self, run_id: str, hold_id: str, *, reason: str) -> None: ...
    def release(self, hold_id: str) -> bool: ...
    def holds(self, run_id: str | None = None) -> Collection[Hold]: ...
    def candidates(self) -> Iterable[Candidate]: ...
    def links(self) -> Collection[Link]: ...
    def delete_runs(self, run_ids: Iterable[str], *, now: datetime) -> list[str]: ...


@dataclass(frozen=True, slots=True)
class RetentionReport:
    """What a prune deleted and why it left the rest; run ids, sorted. ``referenced`` are linked with runs that stay."""

    deleted: tuple[str, ...] = ()
    held: tuple[str, ...] = ()
    referenced: tuple[str, ...] = ()
    non_terminal: tuple[str, ...] = ()
    recent_terminal: tuple[str, ...] = ()


def plan(
    candidates: Iterable[Candidate],
    links: Iterable[Link],
    *,
    before: datetime,
    run_ids: Collection[str] | None = None,
) -> RetentionReport:
    """Decide about the runs in scope, all or those named. Pure: nothing is deleted here."""
    everyone = {candidate.run_id: candidate for candidate in candidates}
    scope = everyone.keys() if run_ids is None else everyone.keys() & set(run_ids)
    piles: dict[str, list[str]] = defaultdict(list)
    for run_id in sorted(scope):
        piles[_judge(everyone[run_id], before=before)].append(run_id)
    staying = _kept_by_links(links, eligible=set(piles["eligible"]))
    return RetentionReport(
        deleted=tuple(run_id for run_id in piles["eligible"] if run_id not in staying),
        held=tuple(piles["held"]),
        referenced=tuple(run_id for run_id in piles["eligible"] if run_id in staying),
        non_terminal=tuple(piles["non_terminal"]),
        recent_terminal=tuple(piles["recent_terminal"]),
    )


def _judge(candidate: Candidate, *, before: datetime) -> str:
    if not candidate.is_terminal or candidate.ended_at is None:
        return "non_terminal"
    if candidate.ended_at >= before:
        return "recent_terminal"
    return "held" if candidate.is_held else "eligible"


def _kept_by_links(links: Iterable[Link], *, eligible: set[str]) -> set[str]:
    """Whatever is connected, over any number of links, with a run that stays or that is not there."""
    neighbours: dict[str, set[str]] = defaultdict(set)
    for link in links:
        neighbours[link.run_id].add(link.target)
        neighbours[link.target].add(link.run_id)
    staying: set[str] = set()
    spreading = [run_id for run_id in neighbours if run_id not in eligible]
    while spreading:
        run_id = spreading.pop()
        if run_id not in staying:
            staying.add(run_id)
            spreading.extend(neighbours[run_id])
    return staying


class Retention:
    """The verbs of retention."""

    def __init__(self, store: RetentionStore) -> None:
        self.store = store

    def hold(self, run_id: str, hold_id: str, *, reason: str) -> None:
        """Keep a run from being pruned; it may have several holds. The same hold twice is one."""
        self.store.hold(run_id, hold_id, reason=reason)

    def release(self, hold_id: str) -> bool:
        """Take a hold away; False when there was none."""
        return self.store.release(hold_id)

    def holds(self, run_id: str | None = None) -> Collection[Hold]:
        """All holds, or one run's, by hold id."""
        return self.store.holds(run_id)

    def preview(self, *, before: datetime, run_ids: Collection[str] | None = None) -> RetentionReport:
        """What :meth:`prune` would do."""
        cutoff = instants.utc(before, what="the cutoff of retention")
        return plan(self.store.candidates(), self.store.links(), before=cutoff, run_ids=run_ids)

    def prune(self, *, before: datetime, now: datetime, run_ids: Collection[str] | None = None) -> RetentionReport:
        """Delete runs that ended before a time, all or those named, and report.

        One transaction deletes all of them and leaves their tombstones. Raises StoreError, RunConflictError or
        RunNotFoundError when that is not possible any more; then nothing is deleted.
        """
        report = self.preview(before=before, run_ids=run_ids)
        if report.deleted:
            self.store.delete_runs(report.deleted, now=instants.utc(now, what="the time of deletion"))
        return report
