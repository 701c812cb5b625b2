"""Who meets the admin in these tests, and what each may do."""

from __future__ import annotations

from typing import Any

from django.contrib.auth import get_user_model
from django.contrib.auth.models import Permission
from django.test import Client

RIGHTS = {
    "viewer": ["view_run", "view_hook"],
    "approver": ["view_hook", "resume_hook"],
    "operator": [
        "view_run", "view_hook", "view_payload", "start_run", "resume_hook", "cancel_run", "terminate_run",
        "operate_run",
    ],
}  # fmt: skip
PEOPLE = ("anonymous", "stranger", "staff", "viewer", "approver", "operator", "superuser")


def person(name: str, *rights: str, **fields: Any) -> Any:
    """A user of this name, with the rights of a role of that name, or with these."""
    fields = {"is_staff": name != "stranger", "is_superuser": name == "superuser", **fields}
    user = get_user_model().objects.create(username=name, **fields)
    wanted = rights or tuple(RIGHTS.get(name, ()))
    user.user_permissions.set(Permission.objects.filter(content_type__app_label="flow_app", codename__in=wanted))
    return user


def browser(name: str, *rights: str, **kwargs: Any) -> Client:
    """The browser of somebody who is logged in; nobody is, under the name anonymous."""
    client = Client(**kwargs)
    if name != "anonymous":
        client.force_login(person(name, *rights))
    return client
