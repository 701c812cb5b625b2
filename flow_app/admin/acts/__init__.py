"""What people may do to runs and hooks from the admin: each act a small module, with a permission of its own.

An act is asked for by GET and done by POST, in one commit with a line in the admin log. Its user is the actor.
"""

from flow_app.admin.acts.buttons import hook_buttons, run_buttons
from flow_app.admin.acts.runs import RunActsMixin
from flow_app.admin.acts.views import ActsMixin

__all__ = ["ActsMixin", "RunActsMixin", "hook_buttons", "run_buttons"]
