"""What drf-spectacular is told about the API; nothing where it is not installed."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from typing import Any, TypeVar

T = TypeVar("T")

#: drf-spectacular's vocabulary; None where it is not installed, and the API works without its description.
_spectacular: Any = import_module("drf_spectacular.utils") if find_spec("drf_spectacular") else None

#: JSON of any kind. No ``type``: also null, numbers and lists.
ANY_JSON: dict[str, Any] = {"description": "Any JSON value."}

_HEADER, _QUERY = "header", "query"


def described(operation: str, summary: str, *, sent: Any = None, **more: Any) -> Callable[[T], T]:
    """Describe one method of a view. ``operation`` is the stable operationId, ``more`` what extend_schema takes.

    ``sent`` is the body, JSON: forms are for the people who read the browsable pages.
    """
    if _spectacular is None:
        return _unchanged
    more["request"] = None if sent is None else {"application/json": sent}
    describe: Callable[[T], T] = _spectacular.extend_schema(
        operation_id=f"flow_{operation}", summary=summary, tags=["flow"], **more
    )
    return describe


def field_of(schema: Any) -> Callable[[T], T]:
    """Describe one serializer field, or the method behind it."""
    if _spectacular is None:
        return _unchanged
    describe: Callable[[T], T] = _spectacular.extend_schema_field(schema)
    return describe


def _unchanged(described: T) -> T:
    return described


def query(name: str, description: str, kind: type = str, **more: Any) -> Any:
    """A parameter of the query string, or None where nobody asks for a description."""
    return _parameter(name, _QUERY, description, kind, **more)


def header(name: str, description: str, **more: Any) -> Any:
    return _parameter(name, _HEADER, description, str, **more)


def answer(serializer: Any, description: str) -> Any:
    """One status's answer."""
    return None if _spectacular is None else _spectacular.OpenApiResponse(serializer, description)


def problems(*statuses: int) -> dict[Any, Any]:
    """Refusals with these statuses, as problem JSON; besides those that every address knows."""
    from flow_app.api.serializers import FlowProblem

    every = (401, 403, 406, 429)
    media = "application/problem+json"
    return {_Status((status, media)): answer(FlowProblem, _SAYS[status]) for status in sorted({*every, *statuses})}


class _Status(tuple[int, str]):
    """A status and its media type. As text it is the status alone.

    drf-spectacular takes the answer whose text is the smallest for the main one, and sees by it whether a list is
    answered, with filters and pages. "(400, ...)" would come before "200".
    """

    __slots__ = ()

    def __str__(self) -> str:
        return str(self[0])


_SAYS = {
    400: "What was sent is not valid; `errors` says where.",
    401: "Not authenticated.",
    403: "Not allowed.",
    404: "Not there, or not for you to see.",
    406: "Not to be had in that form.",
    409: "It stands otherwise already; nothing was changed.",
    410: "Closed without an answer; nothing was changed.",
    413: "More than is taken.",
    415: "Not JSON.",
    429: "Too many requests; `Retry-After` says when to come again.",
    503: "Not now: the database is busy, or nobody can run this build. Come again.",
}


def _parameter(name: str, where: str, description: str, kind: type, **more: Any) -> Any:
    if _spectacular is None:
        return None
    return _spectacular.OpenApiParameter(name, kind, where, description=description, **more)
