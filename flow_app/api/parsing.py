"""Bodies: JSON no larger than a payload may be, and the forms of the browsable pages."""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import IO, Any

from django.utils.translation import gettext as _
from rest_framework.exceptions import ParseError
from rest_framework.parsers import JSONParser

from flow_app import conf
from flow_app.api.problems import TooLarge


class LimitedJSONParser(JSONParser):
    """JSON of at most twice FLOW_APP["MAX_PAYLOAD"] bytes: white space and escapes may double what is stored.

    It is UTF-8, whatever charset the request names: JSON has no other, and some that Python knows take hours to decode.
    """

    def parse(
        self, stream: IO[Any], media_type: str | None = None, parser_context: Mapping[str, Any] | None = None
    ) -> Any:
        limit = 2 * conf.options().max_payload
        body = stream.read(limit + 1)
        if len(body) > limit:
            raise TooLarge
        context = {**(parser_context or {}), "encoding": "utf-8"}
        try:
            return super().parse(io.BytesIO(body), media_type, context)
        except RecursionError:
            raise ParseError(_("JSON parse error - it is nested too deeply")) from None
