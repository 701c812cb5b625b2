"""Hook tokens. Only a token's digest is ever kept; the raw token travels to whoever may answer the hook."""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
from collections.abc import Iterable

from flow_app.errors import InvalidTransitionError

_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_PURPOSE = b"flow_app.hook-token.v1"


def digest(token: str) -> str:
    """``sha256:<hex>`` of a raw token."""
    return "sha256:" + hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()


def as_digest(token: str) -> str:
    """The token's digest, for an imported event: a digest stays as it is, anything else is taken for a raw token."""
    return token if _DIGEST.fullmatch(token) else digest(token)


def check_token(token: object) -> str:
    """Return the raw token, or raise InvalidTransitionError without showing it."""
    if not isinstance(token, str) or not token.strip():
        raise InvalidTransitionError("a hook token must be a non-blank string (token not shown)")
    return str.__str__(token)


def derive(secret: str | bytes, *, run_id: str, hook_id: str) -> str:
    """An unguessable token for a hook, the same each time: HMAC-SHA256 of run and hook under the project's secret."""
    key = secret.encode("utf-8", "surrogatepass") if isinstance(secret, str) else secret
    message = b"\0".join((_PURPOSE, run_id.encode(), hook_id.encode("utf-8", "surrogatepass")))
    return base64.urlsafe_b64encode(hmac.digest(key, message, "sha256")).rstrip(b"=").decode("ascii")


def derive_matching(secrets: Iterable[str | bytes], *, run_id: str, hook_id: str, known: str) -> str | None:
    """The token whose digest is ``known``, from the first secret that derives it; None when none does."""
    for secret in secrets:
        token = derive(secret, run_id=run_id, hook_id=hook_id)
        if hmac.compare_digest(digest(token), known):
            return token
    return None
