"""All acts there are."""

from __future__ import annotations

from collections.abc import Sequence

from flow_app.admin.acts.act import Act
from flow_app.admin.acts.answer import ANSWER, WITHDRAW
from flow_app.admin.acts.approve import APPROVE, REJECT
from flow_app.admin.acts.cancel import CANCEL
from flow_app.admin.acts.force_cancel import FORCE_CANCEL
from flow_app.admin.acts.pause import PAUSE, UNPAUSE
from flow_app.admin.acts.run_now import RUN_NOW

RUN_ACTS = (RUN_NOW, PAUSE, UNPAUSE, CANCEL, FORCE_CANCEL)
HOOK_ACTS = (APPROVE, REJECT, ANSWER, WITHDRAW)


def named(acts: Sequence[Act], name: str) -> Act | None:
    return next((act for act in acts if act.name == name), None)
