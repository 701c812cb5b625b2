"""What all views have in common: who may, which runs they see, and how a verb is done."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, TypeVar

from django.db.models import QuerySet
from django.utils.translation import gettext as _
from rest_framework.exceptions import NotFound, PermissionDenied, ValidationError
from rest_framework.generics import GenericAPIView
from rest_framework.parsers import FormParser, MultiPartParser
from rest_framework.response import Response
from rest_framework.serializers import BaseSerializer

from flow_app import get_engine, presenting
from flow_app.api.committing import commit
from flow_app.api.fields import shown
from flow_app.api.filters import FlowFilterBackend
from flow_app.api.pages import PagesMixin
from flow_app.api.parsing import LimitedJSONParser
from flow_app.api.permissions import VIEW_PAYLOAD, FlowPermission
from flow_app.api.problems import ProblemMixin
from flow_app.api.throttling import address_of
from flow_app.core.actor import Actor
from flow_app.engine import FlowEngine
from flow_app.models import Run

T = TypeVar("T")


class FlowView(PagesMixin, ProblemMixin, GenericAPIView[Any]):
    """One resource. A project's own subclass, or a mixin for :func:`flow_app.api.urls.api_urls`, may override

    * :meth:`filter_queryset_for`: which runs a user sees, and through them which events, hooks and so on;
    * :meth:`redact`: what of a payload is shown;
    * ``permission_classes``, ``throttle_classes`` and the like. :class:`FlowPermission` is asked besides, and
      ``has_object_permission`` of the project's classes about the run, whatever belongs to it.
    """

    #: What a caller must be allowed, by method; HEAD and OPTIONS are as GET, or as the first of them.
    permissions: ClassVar[Mapping[str, Sequence[str]]]
    #: Parameters of the query string that are no filters.
    other_parameters: frozenset[str] = frozenset({"include"})
    input_class: type[BaseSerializer[Any]] | None = None
    parser_classes = (LimitedJSONParser, FormParser, MultiPartParser)
    filter_backends: Sequence[type[Any]] = (FlowFilterBackend,)

    # --- for projects -------------------------------------------------------------------------------------------------

    def filter_queryset_for(self, user: Any, runs: QuerySet[Run]) -> QuerySet[Run]:
        """The runs that a user may know of, from all of them."""
        return runs

    def redact(self, value: Any) -> Any:
        """A payload, plain JSON, as it is shown to those who may see payloads."""
        return presenting.redact(value)

    # --- who may ------------------------------------------------------------------------------------------------------

    def get_permissions(self) -> list[Any]:
        """Ours first: nobody learns from a 404 what they may not ask for."""
        return [FlowPermission(), *super().get_permissions()]

    def needed(self, method: str | None) -> Sequence[str]:
        fallback = self.permissions.get("GET") or next(iter(self.permissions.values()))
        return self.permissions.get(method or "", fallback)

    @property
    def shows_payloads(self) -> bool:
        """Does the caller ask for payloads? Raises PermissionDenied when they are not for the caller."""
        asked = self.request.query_params.getlist("include")
        if set(asked) - {"payload"}:
            raise ValidationError({"include": [_("Only `payload` can be included.")]})
        if asked and not self.request.user.has_perm(VIEW_PAYLOAD):
            raise PermissionDenied(_("To see payloads takes the permission flow_app.view_payload."))
        return bool(asked)

    # --- what there is ------------------------------------------------------------------------------------------------

    @property
    def engine(self) -> FlowEngine:
        return get_engine()

    @property
    def using(self) -> str:
        using: str = self.engine.store.using  # type: ignore[attr-defined]
        return using

    def visible_runs(self) -> Any:
        return self.filter_queryset_for(self.request.user, Run.objects.using(self.using).all())

    def find_run(self) -> Run:
        """The run that the address names. Raises NotFound, also for one that is not for the caller to see."""
        run: Run | None = self.visible_runs().with_id(self.kwargs["run_id"]).first()
        if run is None:
            raise NotFound
        self.check_object_permissions(self.request, run)
        return run

    # --- how it is done -----------------------------------------------------------------------------------------------

    @property
    def actor(self) -> Actor:
        return Actor(self.request.user.get_username(), address=address_of(self.request))

    def commit(self, act: Callable[[], T]) -> T:
        return commit(self.engine, act)

    def sent(self) -> Mapping[str, Any]:
        """The body, checked. Raises ValidationError."""
        serializer = self.get_serializer(data=self.request.data)
        serializer.is_valid(raise_exception=True)
        values: Mapping[str, Any] = serializer.validated_data
        return values

    # --- how it is shown ----------------------------------------------------------------------------------------------

    def get_serializer_class(self) -> type[BaseSerializer[Any]]:
        is_sent = self.request is not None and self.request.method == "POST"
        if is_sent and self.input_class is not None:
            return self.input_class
        return super().get_serializer_class()

    def reading(self, **more: Any) -> dict[str, Any]:
        """The context of a serializer that reads."""
        return {
            **self.get_serializer_context(),
            "now": self.engine.store.clock.now(),
            "redact": lambda value: shown(self.redact(value)),
            **more,
        }

    def page_of(self, rows: QuerySet[Any], serializer: type[BaseSerializer[Any]], **more: Any) -> Response:
        """One page of rows, filtered as the caller asks."""
        page = self.paginate_queryset(self.filter_queryset(rows))
        context = self.reading(payloads=self.shows_payloads, **more)
        return self.get_paginated_response(serializer(page, many=True, context=context).data)
