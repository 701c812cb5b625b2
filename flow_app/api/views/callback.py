"""The public door: whoever has a hook's token may answer it."""

from __future__ import annotations

from typing import Any, NoReturn

from django.http import HttpResponseBase
from django.utils.translation import gettext as _
from rest_framework.exceptions import ParseError
from rest_framework.request import Request
from rest_framework.response import Response

from flow_app import conf, get_engine, presenting
from flow_app.answering import hook_behind
from flow_app.api import deciding
from flow_app.api.fields import AnyJson
from flow_app.api.pages import PagesMixin
from flow_app.api.parsing import LimitedJSONParser
from flow_app.api.problems import ProblemMixin, Refused
from flow_app.api.schema import ANY_JSON, answer, described, problems
from flow_app.api.serializers import FlowHook
from flow_app.api.throttling import TokenThrottle, address_of
from flow_app.core.actor import Actor
from flow_app.models import Hook

ACTOR = "token"
_REFUSALS = problems(400, 404, 409, 410, 413, 415, 503)
_LOOK = {200: FlowHook, **problems(404)}
_ANSWERED = {200: answer(FlowHook, "Answered so, now or before."), **_REFUSALS}
_WITHDRAWN = {200: answer(FlowHook, "Withdrawn, now or before."), **_REFUSALS}
_FIRST_WINS = (
    "The body is the answer itself, any JSON. The first answer wins: the same again is 200, another is 409 with the "
    "answer that stands, and 410 says that the hook was closed without one."
)


class CallbackView(PagesMixin, ProblemMixin):
    """One hook, by its token. Looking decides nothing; send an answer, or delete the hook to withdraw it."""

    parser_classes = (LimitedJSONParser,)

    def get_authenticators(self) -> list[Any]:
        """None, whatever a project's mixin sets for all views. The token is the whole authority.

        No cookie is looked at, so no other site can borrow one; and a bearer token is not taken for one of the
        project's own.
        """
        return []

    def get_permissions(self) -> list[Any]:
        return []

    def redact(self, value: Any) -> Any:
        """The answer that stands, as it is shown to who comes too late; a project's mixin may do it in its own way."""
        return presenting.redact(value)

    def get_throttles(self) -> list[Any]:
        return [TokenThrottle(), *super().get_throttles()]

    @described("callbacks_retrieve", "What a token opens", auth=[], responses=_LOOK)
    def get(self, request: Request, **kwargs: Any) -> Response:
        return self.show(self.find_hook())

    def options(self, request: Any, *args: Any, **kwargs: Any) -> Response:
        return self.show(self.find_hook())

    @described(
        "callbacks_resume",
        "Answer by token",
        description=_FIRST_WINS,
        auth=[],
        sent=ANY_JSON,
        responses=_ANSWERED,
    )
    def post(self, request: Request, **kwargs: Any) -> Response:
        hook = self.find_hook()
        deciding.resume(get_engine(), hook, self._answer(), actor=self._actor, show=self.redact)
        return self.show(hook, is_old=True)

    @described("callbacks_dispose", "Withdraw by token", auth=[], responses=_WITHDRAWN)
    def delete(self, request: Request, **kwargs: Any) -> Response:
        hook = self.find_hook()
        deciding.dispose(get_engine(), hook, actor=self._actor, show=self.redact)
        return self.show(hook, is_old=True)

    def token(self) -> str:
        token: str = self.kwargs["token"]
        return token

    def find_hook(self) -> Hook:
        hook = hook_behind(self.token(), using=conf.options().database)
        if hook is None:
            raise Refused(404, "hook_token_not_found", _("No hook has this token (not shown), nor ever had."))
        return hook

    @property
    def _actor(self) -> Actor:
        return Actor(ACTOR, address=address_of(self.request))

    def _answer(self) -> Any:
        """The body. Raises ParseError for none: `null` is an answer, nothing is not."""
        if self.request.stream is None:
            raise ParseError(_("Send the answer as JSON; `null` is one, an empty body is not."))
        return AnyJson().to_internal_value(self.request.data)

    def show(self, hook: Hook, *, is_old: bool = False) -> Response:
        if is_old:
            hook.refresh_from_db()
        return Response(dict(FlowHook(hook, context={"now": get_engine().store.clock.now()}).data))

    def raise_uncaught_exception(self, exc: Exception) -> NoReturn:
        """A fault of the site. Django logs and mails the address of the request: without the token, then."""
        request = self.request._request
        request.path = request.path_info = request.META["PATH_INFO"] = self._address_to_log()
        for name in ("RAW_URI", "REQUEST_URI"):  # of gunicorn and uWSGI
            request.META.pop(name, None)
        raise exc

    def _address_to_log(self) -> str:
        path = self.request._request.path
        return path.replace(self.kwargs["token"], "(token)") if "token" in self.kwargs else path

    def finalize_response(self, request: Request, response: HttpResponseBase, *args: Any, **kwargs: Any) -> Any:
        """The address is a secret: no cache keeps it, no link leads it on, and Django logs no refusal of it."""
        response._has_been_logged = True  # type: ignore[attr-defined]
        response["Cache-Control"] = "no-store"
        response["Referrer-Policy"] = "no-referrer"
        return super().finalize_response(request, response, *args, **kwargs)


class BearerCallbackView(CallbackView):
    """One hook, by the token in ``Authorization: Bearer``: it stays out of addresses and their logs."""

    @described("callbacks_bearer_retrieve", "What a bearer token opens", auth=[{"flowToken": []}], responses=_LOOK)
    def get(self, request: Request, **kwargs: Any) -> Response:
        return super().get(request, **kwargs)

    @described(
        "callbacks_bearer_resume",
        "Answer by bearer token",
        description=_FIRST_WINS,
        auth=[{"flowToken": []}],
        sent=ANY_JSON,
        responses=_ANSWERED,
    )
    def post(self, request: Request, **kwargs: Any) -> Response:
        return super().post(request, **kwargs)

    @described("callbacks_bearer_dispose", "Withdraw by bearer token", auth=[{"flowToken": []}], responses=_WITHDRAWN)
    def delete(self, request: Request, **kwargs: Any) -> Response:
        return super().delete(request, **kwargs)

    def token(self) -> str:
        header = str(self.request.META.get("HTTP_AUTHORIZATION") or "")
        kind, token = header[:7].lower(), header[7:].strip()
        if kind != "bearer " or not token:
            raise Refused(
                401, "not_authenticated", _("Send the hook's token as Authorization: Bearer."), auth_header="Bearer"
            )
        return token.encode("latin-1", "replace").decode("utf-8", "replace")
