"""The acts of runs, as a mixin for their admin."""

from __future__ import annotations

from typing import Any

from django.contrib.admin.options import IS_POPUP_VAR
from django.http import HttpRequest

from flow_app.admin.acts.bulk import actions_of
from flow_app.admin.acts.buttons import RunButtons, run_buttons
from flow_app.admin.acts.catalogue import RUN_ACTS
from flow_app.admin.acts.start import StartMixin
from flow_app.admin.acts.views import ActsMixin
from flow_app.models import Run


class RunActsMixin(StartMixin, ActsMixin):
    """A page to start a run, a page for each act on one, and the acts on many as actions of the list."""

    acts = RUN_ACTS

    def get_actions(self, request: HttpRequest) -> dict[str, Any]:
        if IS_POPUP_VAR in request.GET:
            return {}
        return {**super().get_actions(request), **actions_of(self.acts, request)}

    def buttons(self, request: HttpRequest, run: Run) -> RunButtons:
        """For ``admin/flow_app/run/acts.html``, which shows them as ``acts``."""
        return run_buttons(request, run, site=self.admin_site)
