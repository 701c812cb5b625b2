"""Which hook a raw token opens, or opened."""

from __future__ import annotations

from django.db.models import F, QuerySet

from flow_app.core.tokens import digest
from flow_app.models import Hook


def hook_behind(token: str, *, using: str) -> Hook | None:
    """The active hook that has this token, else the one last closed under it; None when it was never issued.

    The engine's verbs see active hooks alone, so the repetition of an answer that has arrived finds nothing there.
    Whoever wants to be told that it did goes on by the run's and the hook's id, which this look-up finds.
    """
    known = digest(token)
    hooks: QuerySet[Hook] = Hook.objects.using(using).with_runs()
    active = hooks.with_token(known).first()  # type: ignore[attr-defined]
    if active is not None:
        return active  # type: ignore[no-any-return]
    return hooks.filter(token_digest=known).order_by(F("resolved_at").desc(nulls_last=True), "-id").first()
