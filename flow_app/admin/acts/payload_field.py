"""A form field for JSON that the engine can store."""

from __future__ import annotations

import json
from typing import Any, NoReturn

from django import forms
from django.core.exceptions import ValidationError
from django.utils.translation import gettext_lazy as _

from flow_app import conf
from flow_app.core.payload import Payload
from flow_app.errors import PayloadError


class PayloadField(forms.CharField):
    """JSON text; nothing is null. The value is checked as the engine will, so that the form says what is wrong."""

    widget = forms.Textarea
    default_error_messages = {"invalid": _("This is not JSON: %(problem)s.")}

    def __init__(self, **kwargs: Any) -> None:
        attrs = {"rows": 8, "cols": 80, "class": "vLargeTextField flow-json", "spellcheck": "false"}
        kwargs.setdefault("widget", forms.Textarea(attrs=attrs))
        super().__init__(required=False, strip=True, **kwargs)

    def to_python(self, value: Any) -> Any:
        text = super().to_python(value)
        parsed = None if not text else self._parsed(text)
        try:
            Payload.of(parsed, limits=conf.options().limits)
        except PayloadError as error:
            raise ValidationError(self.error_messages["invalid"], code="invalid", params={"problem": error}) from None
        return parsed

    def _parsed(self, text: str) -> Any:
        try:
            return json.loads(text, parse_constant=_no_constant)
        except (ValueError, RecursionError) as error:
            raise ValidationError(self.error_messages["invalid"], code="invalid", params={"problem": error}) from None

    def validate(self, value: Any) -> None:
        """Whatever the JSON says is data; there is nothing that must not be empty."""

    def run_validators(self, value: Any) -> None:
        """The validators of text do not apply to what it says."""


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number in JSON")
