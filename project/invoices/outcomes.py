"""The ways an invoice can end."""

from __future__ import annotations

from enum import StrEnum


class Outcome(StrEnum):
    """What became of an invoice. All but the last two are completed runs: a rejection is a result, not a failure."""

    PAID = "paid"
    INVALID = "rejected: invalid"
    UNMATCHED = "rejected: no such order"
    NOT_COVERED = "rejected: order too small"
    NOT_APPROVED = "rejected: not approved"
    NO_ANSWER = "rejected: no answer in time"
    UNPAYABLE = "payment failed"
    WITHDRAWN = "withdrawn"

    @property
    def status(self) -> str:
        """The status of a run that ends like this."""
        return {Outcome.UNPAYABLE: "failed", Outcome.WITHDRAWN: "cancelled"}.get(self, "completed")
