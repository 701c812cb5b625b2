"""Who may do what: deny by default, and each verb is a permission of its own."""

from __future__ import annotations

from typing import Any

from rest_framework.permissions import BasePermission
from rest_framework.request import Request

VIEW_RUN = "flow_app.view_run"
VIEW_HOOK = "flow_app.view_hook"
VIEW_PAYLOAD = "flow_app.view_payload"
CHANGE_RUN = "flow_app.change_run"
START_RUN = "flow_app.start_run"
RESUME_HOOK = "flow_app.resume_hook"
CANCEL_RUN = "flow_app.cancel_run"
TERMINATE_RUN = "flow_app.terminate_run"
OPERATE_RUN = "flow_app.operate_run"


class FlowPermission(BasePermission):
    """Somebody who is known, and has all that the view's ``permissions`` name for this method.

    It stands beside the project's DEFAULT_PERMISSION_CLASSES, never in their place.
    """

    def has_permission(self, request: Request, view: Any) -> bool:
        user = request.user
        if not user or not user.is_authenticated:
            return False
        return user.has_perms(view.needed(request.method))
