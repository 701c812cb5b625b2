"""Runs in the admin: the list, and the page of one run."""

from __future__ import annotations

from flow_app.admin.looking import LookingAdmin


class RunAdmin(LookingAdmin):
    """The list of runs and the page of each."""

    list_display = ["run_id", "status", "workflow", "version", "created_at"]
    ordering = ["-id"]
