"""Parameters that several addresses take."""

from __future__ import annotations

from flow_app.api.schema import query

INCLUDE = query(
    "include",
    "`payload`: show what workflows and callers put in, too. It takes the permission `flow_app.view_payload`.",
    pattern="^payload$",
)
AFTER = query("after", "Events after this number: the `sequence` of the last one that you have.", int)
