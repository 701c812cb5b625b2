"""What the runs came to, counted from their snapshots and the gateway's ledger, and checked against expectation."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from decimal import Decimal

from flow_app import get_engine
from flow_app.types import RunStatus, WorkflowRunSnapshot
from project.invoices.models import LedgerEntry, Reservation
from project.invoices.outcomes import Outcome
from project.invoices.rows import Row

MAIL_STEPS = {"mail", "ask"}
Money = tuple[str, Decimal]


@dataclass
class Report:
    outcomes: Counter[tuple[str, str]] = field(default_factory=Counter)
    attempts: int = 0
    retries: int = 0
    mails: int = 0
    charges: int = 0
    voided: int = 0
    repeats: int = 0
    problems: list[str] = field(default_factory=list)

    def add_run(self, number: str, snapshot: WorkflowRunSnapshot, expected: Outcome) -> None:
        outcome = outcome_of(snapshot)
        self.outcomes[snapshot.status, outcome] += 1
        self.attempts += sum(step.attempt for step in snapshot.steps.values())
        self.retries += sum(max(step.attempt - 1, 0) for step in snapshot.steps.values())
        self.mails += sum(step.status == "completed" for name, step in snapshot.steps.items() if name in MAIL_STEPS)
        if (snapshot.status, outcome) != (expected.status, expected):
            self.problems.append(f"{number} ended as {snapshot.status}, {outcome}; expected {expected}")

    def add_ledger(self, entries: Collection[LedgerEntry], due: Mapping[str, Money]) -> None:
        self.charges = sum(not entry.voided for entry in entries)
        self.voided = sum(entry.voided for entry in entries)
        self.repeats = sum(entry.requests - 1 for entry in entries)
        self.problems += ledger_problems(entries, due)

    def table(self, seconds: float) -> str:
        lines = [f"{'status':<10} {'outcome':<28} {'runs':>6}", "-" * 46]
        lines += [
            f"{status:<10} {outcome:<28} {count:>6}" for (status, outcome), count in sorted(self.outcomes.items())
        ]
        totals = {
            "runs": self.outcomes.total(),
            "step attempts": self.attempts,
            "of them retries": self.retries,
            "mails": self.mails,
            "charges in the ledger": self.charges,
            "charges voided again": self.voided,
            "repeated requests, not charged": self.repeats,
            "seconds": f"{seconds:.1f}",
        }
        return "\n".join([*lines, "-" * 46, *(f"{name:<39} {value:>6}" for name, value in totals.items())])


def outcome_of(snapshot: WorkflowRunSnapshot) -> str:
    """How a run ended, in the words of Outcome; its status while it has not."""
    if snapshot.status is RunStatus.COMPLETED:
        return str(snapshot.output["outcome"])
    other = {RunStatus.FAILED: Outcome.UNPAYABLE, RunStatus.CANCELLED: Outcome.WITHDRAWN}
    return str(other.get(snapshot.status, snapshot.status))


def make_report(rows: Collection[Row], expected: Mapping[str, Outcome]) -> Report:
    report, engine = Report(), get_engine()
    for number, outcome in expected.items():
        report.add_run(number, engine.snapshot(f"invoice-{number}"), outcome)
    paid = {number for number, outcome in expected.items() if outcome is Outcome.PAID}
    due = {row["number"]: (row["currency"], Decimal(row["amount"])) for row in rows if row["number"] in paid}
    report.add_ledger(LedgerEntry.objects.filter(reference__in=expected), due)
    held = set(Reservation.objects.filter(invoice__in=expected).values_list("invoice", flat=True))
    report.problems += [f"{number}: wrong about what its order holds" for number in sorted(held ^ paid)]
    return report


def ledger_problems(entries: Collection[LedgerEntry], due: Mapping[str, Money]) -> Iterator[str]:
    """Every paid invoice charged once and in full, nothing else charged, and the sums are right."""
    charged = [entry for entry in entries if not entry.voided]
    times = Counter(entry.reference for entry in charged)
    for number in sorted(due.keys() | times.keys()):
        if times[number] != (number in due):
            yield f"{number} was charged {times[number]} times"
    if _sums((entry.currency, entry.amount) for entry in charged) != _sums(due.values()):
        yield "the sums in the ledger are not those of the paid invoices"


def _sums(amounts: Iterable[Money]) -> dict[str, Decimal]:
    sums: defaultdict[str, Decimal] = defaultdict(Decimal)
    for currency, amount in amounts:
        sums[currency] += amount
    return sums
