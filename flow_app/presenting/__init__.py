"""What a run is doing, in words: for the admin and the API alike. It reads rows, and writes nothing."""

from flow_app.presenting.badges import OVERDUE_AFTER, Badge, badges, is_overdue, status_badge
from flow_app.presenting.ends import ends_of
from flow_app.presenting.hook_facts import HookFacts, facts_of
from flow_app.presenting.moments import here, lasting, when
from flow_app.presenting.payloads import Excerpt, excerpt, excerpt_of, mask_token, redact
from flow_app.presenting.sentences import headline, why
from flow_app.presenting.waiting import Waiting, glance, look

__all__ = [
    "OVERDUE_AFTER",
    "Badge",
    "Excerpt",
    "HookFacts",
    "Waiting",
    "badges",
    "ends_of",
    "excerpt",
    "excerpt_of",
    "facts_of",
    "glance",
    "headline",
    "here",
    "is_overdue",
    "lasting",
    "look",
    "mask_token",
    "redact",
    "status_badge",
    "when",
    "why",
]
