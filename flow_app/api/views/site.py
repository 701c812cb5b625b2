"""What the site has: workflows, counts, and where everything is."""

from __future__ import annotations

from typing import Any

from django.db.models import Count, Sum
from rest_framework.request import Request
from rest_framework.response import Response

from flow_app.api.links import link
from flow_app.api.permissions import VIEW_RUN
from flow_app.api.schema import described, problems
from flow_app.api.serializers import FlowSummary, FlowWorkflow
from flow_app.api.views.base import FlowView
from flow_app.authoring import registry
from flow_app.core.snapshot import RunStatus
from flow_app.models import Run

_OPENED = ("open_waits", "active_hooks", "pending_retries")


class SiteView(FlowView):
    permissions = {"GET": [VIEW_RUN]}
    queryset = Run.objects.none()
    pagination_class = None
    filter_backends = ()


class Root(FlowView):
    """Where everything is."""

    permissions = {"GET": []}
    queryset = Run.objects.none()
    filter_backends = ()

    @described("root", "Where everything is", responses={200: dict[str, str], **problems()})
    def get(self, request: Request, **kwargs: Any) -> Response:
        return Response({name: link(request, name) for name in ("runs", "hooks", "workflows", "summary")})


class Workflows(SiteView):
    """The workflows that this process knows."""

    permissions = {"GET": []}
    serializer_class = FlowWorkflow

    @described("workflows_list", "Workflows", responses={200: FlowWorkflow(many=True), **problems()})
    def get(self, request: Request, **kwargs: Any) -> Response:
        specs = [registry.workflows.get(name).spec for name in registry.workflows.names()]
        return Response(FlowWorkflow(specs, many=True).data)


class Summary(SiteView):
    """Counts of the runs that you see."""

    serializer_class = FlowSummary

    @described("summary", "Counts", responses={200: FlowSummary, **problems()})
    def get(self, request: Request, **kwargs: Any) -> Response:
        runs = self.visible_runs().order_by()
        counts = {status.value: 0 for status in RunStatus} | dict(runs.values_list("status").annotate(Count("id")))
        terminal = sum(counts[status.value] for status in RunStatus if status.is_terminal)
        total = sum(counts.values())
        opened = runs.open().aggregate(**{f"sum_{name}": Sum(name) for name in _OPENED})
        sums = {name: opened[f"sum_{name}"] or 0 for name in _OPENED}
        data = {**counts, **sums, "total": total, "terminal": terminal, "non_terminal": total - terminal}
        return Response(dict(FlowSummary(data).data))
