"""How often one address may ask at the public endpoint."""

from __future__ import annotations

import hashlib
from typing import Any

from rest_framework.request import Request
from rest_framework.settings import api_settings
from rest_framework.throttling import SimpleRateThrottle

from flow_app.core.payload import clean_text

SCOPE = "flow_token"
DEFAULT_RATE = "60/min"
_LONGEST = 100


def address_of(request: Request) -> str:
    """The caller's network address.

    ``X-Forwarded-For`` is believed only as far as REST_FRAMEWORK["NUM_PROXIES"] says: anybody may send that header.
    """
    direct = str(request.META.get("REMOTE_ADDR") or "")
    proxies = api_settings.NUM_PROXIES
    if not proxies:
        return direct
    hops = [hop.strip() for hop in str(request.META.get("HTTP_X_FORWARDED_FOR") or "").split(",") if hop.strip()]
    return clean_text(hops[-min(proxies, len(hops))], limit=_LONGEST) if hops else direct


class TokenThrottle(SimpleRateThrottle):
    """Per address, whoever it is; REST_FRAMEWORK["DEFAULT_THROTTLE_RATES"]["flow_token"] sets another rate."""

    scope = SCOPE

    def get_rate(self) -> str | None:
        rates: dict[str, Any] = api_settings.DEFAULT_THROTTLE_RATES or {}
        rate: str | None = rates.get(SCOPE, DEFAULT_RATE)
        return rate

    def get_cache_key(self, request: Request, view: Any) -> str:
        """Under a digest: what a proxy hands on as an address may be anything, and caches take no such keys."""
        ident = hashlib.sha256(address_of(request).encode("utf-8", "surrogatepass")).hexdigest()[:32]
        return self.cache_format % {"scope": self.scope, "ident": ident}
