"""Hooks: the inbox, and answering one by its run and id."""

from __future__ import annotations

from typing import Any

from django.http import Http404
from django.utils.translation import gettext as _
from rest_framework.exceptions import PermissionDenied
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.serializers import BaseSerializer

from flow_app.api import deciding
from flow_app.api.filters import HookFilters, given
from flow_app.api.inputs import FlowAnswer
from flow_app.api.paging import Oldest
from flow_app.api.permissions import RESUME_HOOK, VIEW_HOOK, VIEW_PAYLOAD, VIEW_RUN
from flow_app.api.schema import answer, described, problems
from flow_app.api.serializers import FlowHookDetail
from flow_app.api.views.base import FlowView
from flow_app.api.views.parameters import INCLUDE
from flow_app.models import Hook

_REFUSALS = problems(400, 404, 409, 410, 413, 415, 503)


class HookList(FlowView):
    """Hooks that wait for an answer, the oldest first."""

    permissions = {"GET": [VIEW_HOOK]}
    queryset = Hook.objects.all()
    serializer_class = FlowHookDetail
    filterset_class = HookFilters
    pagination_class = Oldest

    @described(
        "hooks_list",
        "Hooks that wait for an answer",
        parameters=[INCLUDE],
        responses={200: FlowHookDetail(many=True), **problems(400, 404)},
    )
    def get(self, request: Request, **kwargs: Any) -> Response:
        self._check_filters()
        hooks = Hook.objects.using(self.using).active().filter(run__in=self.visible_runs())
        return self.page_of(hooks.with_runs(), FlowHookDetail)

    def _check_filters(self) -> None:
        """They ask about the hooks' runs: nobody guesses at what he may not see by asking which hooks have it."""
        asked = set(given(self.request.query_params)) & set(HookFilters.base_filters)
        if asked and not self.request.user.has_perm(VIEW_RUN):
            raise PermissionDenied(_("To filter by what runs are about takes the permission flow_app.view_run."))


class HookDetail(FlowView):
    """One hook. To answer it, send a payload; to withdraw it, delete it."""

    permissions = {"GET": [VIEW_HOOK], "POST": [RESUME_HOOK, VIEW_HOOK], "DELETE": [RESUME_HOOK, VIEW_HOOK]}
    queryset = Hook.objects.all()
    serializer_class = FlowHookDetail
    input_class = FlowAnswer

    @described(
        "hooks_retrieve",
        "One hook",
        parameters=[INCLUDE],
        responses={200: FlowHookDetail, **problems(400, 404)},
    )
    def get(self, request: Request, **kwargs: Any) -> Response:
        return self.show(self.find_hook(), payloads=self.shows_payloads)

    @described(
        "hooks_resume",
        "Answer a hook",
        description="The first answer wins. The same again is 200, another is 409 with the answer that stands.",
        sent=FlowAnswer,
        responses={200: answer(FlowHookDetail, "Answered so, now or before."), **_REFUSALS},
    )
    def post(self, request: Request, **kwargs: Any) -> Response:
        hook = self.find_hook()
        deciding.resume(self.engine, hook, self.sent()["payload"], actor=self.actor, show=self._show_standing)
        return self.show(hook, is_old=True)

    @described(
        "hooks_dispose",
        "Withdraw a hook",
        responses={200: answer(FlowHookDetail, "Withdrawn, now or before."), **_REFUSALS},
    )
    def delete(self, request: Request, **kwargs: Any) -> Response:
        hook = self.find_hook()
        deciding.dispose(self.engine, hook, actor=self.actor, show=self._show_standing)
        return self.show(hook, is_old=True)

    def _show_standing(self, value: Any) -> Any:
        return self.redact(value) if self.request.user.has_perm(VIEW_PAYLOAD) else deciding.verdict(value)

    def get_serializer(self, *args: Any, **kwargs: Any) -> BaseSerializer[Any]:
        """The form of the browsable pages says, to begin with, what approvers say most."""
        serializer = super().get_serializer(*args, **kwargs)
        if isinstance(serializer, FlowAnswer):
            serializer.fields["payload"].initial = {"approved": True}
        return serializer

    def find_hook(self) -> Hook:
        """The hook that the address names. Raises Http404, also for one that is not for the caller to see."""
        hooks = Hook.objects.using(self.using).with_id(self.kwargs["hook_id"])
        runs = self.visible_runs().with_id(self.kwargs["run_id"])
        hook = hooks.filter(run__in=runs).with_runs().first()
        if hook is None:
            raise Http404
        self.check_object_permissions(self.request, hook.run)
        return hook

    def show(self, hook: Hook, *, payloads: bool = False, is_old: bool = False) -> Response:
        if is_old:
            hook.refresh_from_db()
        return Response(dict(FlowHookDetail(hook, context=self.reading(payloads=payloads)).data))
