"""The acts of runs, as a mixin for their admin."""

from __future__ import annotations

from django.http import HttpRequest

from flow_app.admin.acts.bulk import action_of
from flow_app.admin.acts.buttons import RunButtons, run_buttons
from flow_app.admin.acts.catalogue import RUN_ACTS
from flow_app.admin.acts.start import StartMixin
from flow_app.admin.acts.views import ActsMixin
from flow_app.models import Run


class RunActsMixin(StartMixin, ActsMixin):
    """A page to start a run, a page for each act on one, and the acts on many as actions of the list."""

    acts = RUN_ACTS

    actions = tuple(action_of(act) for act in RUN_ACTS)

    def has_cancel_run_permission(self, request: HttpRequest) -> bool:
        return request.user.has_perm("flow_app.cancel_run")

    def has_terminate_run_permission(self, request: HttpRequest) -> bool:
        return request.user.has_perm("flow_app.terminate_run")

    def has_operate_run_permission(self, request: HttpRequest) -> bool:
        return request.user.has_perm("flow_app.operate_run")

    def buttons(self, request: HttpRequest, run: Run) -> RunButtons:
        """For ``admin/flow_app/run/acts.html``, which shows them as ``acts``."""
        return run_buttons(request, run, site=self.admin_site)
