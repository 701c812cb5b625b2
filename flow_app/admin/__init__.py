"""The admin: runs explained, and acted upon. Registered here and nowhere else, so that a project can do otherwise.

A project with another base class unregisters and registers again: ``class MyRunAdmin(RunAdmin, TheirModelAdmin)``.
"""

from django.contrib import admin

from flow_app.admin.inbox import HookAdmin
from flow_app.admin.runs import RunAdmin
from flow_app.admin.runs_of_object import FlowRunsMixin
from flow_app.models import Hook, Run

__all__ = ["FlowRunsMixin", "HookAdmin", "RunAdmin"]

admin.site.register(Run, RunAdmin)
admin.site.register(Hook, HookAdmin)
