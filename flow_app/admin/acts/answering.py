"""How every act answers a hook: checked against what the hook declares, then given to the engine."""

from __future__ import annotations

import json
from typing import Any

from flow_app.admin.acts.act import Deed
from flow_app.answering import check_answer
from flow_app.core.payload import Payload
from flow_app.models import Hook


def check(hook: Hook, payload: Any) -> None:
    """Raise HookPayloadError for an answer that does not look as the hook declares."""
    check_answer(hook.hook_id, Payload(json.loads(hook.metadata)).plain, payload)


def answer_hook(deed: Deed, payload: Any) -> bool:
    """True when this call wrote the answer. Raises HookPayloadError, and what :meth:`FlowEngine.resume_hook` raises."""
    hook = hook_of(deed)
    check(hook, payload)
    return deed.engine.resume_hook(deed.run_id, hook.hook_id, payload, actor=deed.actor)


def hook_of(deed: Deed) -> Hook:
    assert isinstance(deed.target, Hook)
    return deed.target
