"""What is sent."""

from __future__ import annotations

from datetime import datetime
from functools import partial
from typing import Any

from django.http import QueryDict
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from rest_framework import serializers

from flow_app import conf
from flow_app.api.fields import AnyJson, Id, Instant, Words, checked
from flow_app.api.schema import field_of
from flow_app.core.identifiers import MAX_ID, check_id, check_run_id
from flow_app.core.policy import ChildOperationReference, WorkflowProgress

_REASON = 10_000
_U64 = 2**64 - 1


class RunId(Words):
    """The id of a run: letters, digits and ``-_.:``."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(max_length=128, **kwargs)

    def to_internal_value(self, data: Any) -> str:
        text = super().to_internal_value(data)
        return str(checked(lambda: check_run_id(text)))


class Labels(serializers.DictField):
    """Names and texts to find the run by."""

    child = Words(max_length=MAX_ID, allow_blank=True)

    def to_internal_value(self, data: Any) -> dict[str, str]:
        labels: dict[str, str] = super().to_internal_value(data)
        for name in labels:
            checked(partial(check_id, name, what="label name"))
        return labels


class FlowStart(serializers.Serializer[Any]):
    """A run to be started. The same again, with the same ``run_id`` or ``Idempotency-Key``, is the same run."""

    workflow = Id(help_text=gettext_lazy("The name it is registered under."))
    input = AnyJson(required=False, default=None)
    run_id = RunId(required=False, allow_blank=True, default="", help_text=gettext_lazy("Made up if it is left out."))
    subject = Id(
        required=False, allow_blank=True, default="", help_text=gettext_lazy("The business object that it is about.")
    )
    labels = Labels(required=False, default=dict)

    def to_internal_value(self, data: Any) -> Any:
        """An empty box of a form stands for nothing."""
        if isinstance(data, QueryDict):
            filled = data.copy()
            for name in [name for name in data if not data[name]]:
                del filled[name]
            data = filled
        return super().to_internal_value(data)


class FlowReason(serializers.Serializer[Any]):
    """Why."""

    reason = Words(
        required=False, allow_null=True, allow_blank=True, default=None, max_length=_REASON,
        help_text=gettext_lazy("Kept with the run."),
    )  # fmt: skip

    def validate_reason(self, value: str | None) -> str | None:
        return value or None


class FlowTermination(FlowReason):
    """How a run ends, at once and without clean-up."""

    cause = serializers.RegexField(
        r"^(timeout|host_shutdown)$",
        help_text=gettext_lazy("`timeout`, or `host_shutdown` when its host goes away for good."),
    )
    deadline = Instant(
        required=False, allow_null=True, default=None, help_text=gettext_lazy("Of a timeout: the time that had passed.")
    )

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        deadline: datetime | None = attrs["deadline"]
        if attrs["cause"] == "timeout" and deadline is None:
            raise serializers.ValidationError({"deadline": [_("A timeout has a deadline.")]}, code="required")
        return attrs


class FlowNothing(serializers.Serializer[Any]):
    """Nothing need be sent."""


class FlowAnswer(serializers.Serializer[Any]):
    """The answer to a hook."""

    payload = AnyJson(help_text=gettext_lazy("Any JSON, as the workflow expects it. `null` is an answer, too."))


@field_of({"type": "integer", "minimum": 0, "maximum": _U64})
class Count(serializers.IntegerField):
    """A count of 64 bits without a sign, and so described without the format ``int64``, which ends earlier."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(min_value=0, max_value=_U64, **kwargs)


@field_of({"type": "integer", "minimum": 1, "maximum": _U64})
class Total(serializers.IntegerField):
    """The same, of what there is at least one."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(min_value=1, max_value=_U64, **kwargs)


class FlowProgressInput(serializers.Serializer[Any]):
    """How far a run has come. The same again is fine; other content under the same id is not."""

    progress_id = Id()
    completed = Count()
    total = Total(required=False, allow_null=True, default=None)
    message = Words(required=False, allow_null=True, allow_blank=True, default=None, max_length=_REASON)
    details = AnyJson(required=False, default=None)

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        progress = WorkflowProgress(**attrs)
        checked(lambda: progress.to_payload(limits=conf.options().limits))
        return {"progress": progress}


class FlowChildInput(serializers.Serializer[Any]):
    """A child task that another system owns; it is shown, never driven. The same again is fine."""

    reference_id = Id()
    kind = Id()
    operation_id = Id()
    flow_run_id = RunId(
        required=False,
        allow_null=True,
        allow_blank=True,
        default=None,
        help_text=gettext_lazy("The run, if it is one of this site."),
    )
    metadata = AnyJson(required=False, default=None)

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        child = ChildOperationReference(**{**attrs, "flow_run_id": attrs["flow_run_id"] or None})
        checked(lambda: child.to_payload(limits=conf.options().limits))
        return {"child": child}
