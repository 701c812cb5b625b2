"""Refusals as RFC 9457 problem JSON, with the engine's stable codes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from http import HTTPStatus
from typing import Any

from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from rest_framework import exceptions
from rest_framework.response import Response
from rest_framework.settings import api_settings
from rest_framework.views import APIView

from flow_app import errors
from flow_app.core.payload import clean_text
from flow_app.errors import FlowError

MEDIA_TYPE = "application/problem+json"
_RETRY_AFTER = 5

#: The status of each kind of error; the first that fits. Kinds that are not here are faults of the site.
_STATUS: tuple[tuple[type[FlowError], int], ...] = (
    (errors.RunNotFoundError, 404),
    (errors.HookTokenNotFoundError, 404),
    (errors.InvalidRunIdError, 400),
    (errors.InvalidRuntimeBuildIdError, 400),
    (errors.InvalidWorkflowError, 400),
    (errors.PayloadError, 400),
    (errors.HookPayloadError, 400),
    (errors.RunTerminalError, 409),
    (errors.RunConflictError, 409),
    (errors.InvalidTransitionError, 409),
    (errors.HookConflictError, 409),
    (errors.HookTokenConflictError, 409),
    (errors.ProgressConflictError, 409),
    (errors.ChildOperationConflictError, 409),
    (errors.HookSchemaError, 409),
    (errors.RuntimeBuildUnavailableError, 503),
    (errors.RuntimeBuildRouteNotFoundError, 503),
    (errors.EventConflictError, 503),
    (errors.StoreError, 503),
)


class Refused(exceptions.APIException):
    """A refusal. ``more`` are members of the problem beside the usual ones, such as the decision that stands.

    ``auth_header`` is how to come in, for a 401.
    """

    def __init__(self, status: int, code: str, detail: str, *, auth_header: str = "", **more: Any) -> None:
        super().__init__(detail, code)
        self.status_code = status
        self.auth_header = auth_header
        self.more = more


class TooLarge(exceptions.APIException):
    status_code = 413
    default_detail = gettext_lazy("The body is larger than this site takes.")
    default_code = "too_large"


def refusal_of(error: FlowError) -> Refused | None:
    """How an error of the engine is answered; None for one that nobody who calls can do anything about."""
    for kind, status in _STATUS:
        if isinstance(error, kind):
            return Refused(status, error.code, clean_text(str(error), limit=2000), **_more(error))
    return None


def _more(error: FlowError) -> dict[str, Any]:
    if isinstance(error, errors.HookPayloadError):
        return {"errors": [_item(pointer, "invalid", text) for pointer, text in error.problems]}
    if isinstance(error, errors.PayloadError):
        return {"errors": [_item(error.path.removeprefix("$").replace(".", "/"), error.code, error.reason)]}
    return {}


def problem_response(error: exceptions.APIException, response: Response) -> Response:
    """The same refusal as problem JSON; ``response`` is what the REST framework made of it."""
    status = response.status_code
    problem: dict[str, Any] = {"type": "about:blank", "title": HTTPStatus(status).phrase, "status": status}
    problem["code"] = _code(error)
    if isinstance(error, exceptions.ValidationError):
        problem["detail"] = _("Some of what was sent is not valid.")
        problem["errors"] = list(_items(error.get_full_details(), ""))
    else:
        problem["detail"] = str(error.detail)
    if isinstance(error, Refused):
        problem["type"] = f"urn:flow-app:{problem['code']}"
        problem |= error.more
    if status == HTTPStatus.SERVICE_UNAVAILABLE:
        response["Retry-After"] = str(_RETRY_AFTER)
    response.data = problem
    response.is_problem = True  # type: ignore[attr-defined]
    return response


def _code(error: exceptions.APIException) -> str:
    codes = error.get_codes()
    return codes if isinstance(codes, str) else "invalid"


def _items(details: Any, pointer: str) -> Iterator[dict[str, str]]:
    """The errors of a serializer one by one, with JSON pointers into what was sent."""
    if isinstance(details, Mapping) and set(details) == {"message", "code"} and isinstance(details["code"], str):
        yield _item(pointer, str(details["code"]), str(details["message"]))
    elif isinstance(details, Mapping):
        for name, inner in details.items():
            here = pointer if name == api_settings.NON_FIELD_ERRORS_KEY else f"{pointer}/{_escaped(str(name))}"
            yield from _items(inner, here)
    else:
        for index, inner in enumerate(details):
            is_error = isinstance(inner, Mapping) and set(inner) == {"message", "code"}
            yield from _items(inner, pointer if is_error else f"{pointer}/{index}")


def _escaped(name: str) -> str:
    return name.replace("~", "~0").replace("/", "~1")


def _item(pointer: str, code: str, detail: str) -> dict[str, str]:
    text = {"pointer": pointer, "code": code, "detail": detail}
    return {name: clean_text(value, limit=500) for name, value in text.items()}


class ProblemMixin(APIView):
    """Answers refusals of this view as problem JSON, whatever the project's exception handler makes of others."""

    #: The addresses are the project's, and have no versions: its scheme may take a filter, ``version``, for its own.
    versioning_class = None

    def handle_exception(self, exc: Exception) -> Response:
        if isinstance(exc, FlowError):
            exc = refusal_of(exc) or exc
        response = super().handle_exception(exc)
        raised = self._as_api_error(exc, response)
        return problem_response(raised, response)

    @staticmethod
    def _as_api_error(exc: Exception, response: Response) -> exceptions.APIException:
        """Django's own 404 and 403, and what else a project's exception handler answers, as the framework's errors."""
        if isinstance(exc, exceptions.APIException):
            return exc
        known = {HTTPStatus.FORBIDDEN: exceptions.PermissionDenied, HTTPStatus.NOT_FOUND: exceptions.NotFound}
        return known.get(HTTPStatus(response.status_code), exceptions.APIException)()

    def finalize_response(self, request: Any, response: Any, *args: Any, **kwargs: Any) -> Any:
        response = super().finalize_response(request, response, *args, **kwargs)
        renderer = getattr(response, "accepted_renderer", None)
        if getattr(response, "is_problem", False) and getattr(renderer, "media_type", "") == "application/json":
            response.content_type = MEDIA_TYPE
        return response
