from __future__ import annotations

import json
from typing import Any

from django.db import migrations, models
from django.db.models import Q

_AT_A_TIME = 100
_LIMIT = 200


def name_kinds(apps: Any, schema_editor: Any) -> None:
    """Lists say of hooks that wait what they are for; those that are closed are not in them."""
    hooks = apps.get_model("flow_app", "Hook").objects.using(schema_editor.connection.alias)
    active = hooks.filter(status="active").order_by("pk").only("metadata")
    last = 0
    # Batch by batch: a hook may be a megabyte, and not every driver leaves the rest of an answer with the server.
    while batch := list(active.filter(pk__gt=last)[:_AT_A_TIME]):
        for hook in batch:
            hook.kind = _kind_in(hook.metadata)
        hooks.bulk_update([hook for hook in batch if hook.kind], ["kind"])
        last = batch[-1].pk


def _kind_in(metadata: str) -> str:
    """As flow_app.models.hook.kind_of had it in this version."""
    tree = json.loads(metadata)
    kind = tree.get("kind") if isinstance(tree, dict) else None
    if not isinstance(kind, str):
        return ""
    kind = kind.replace("\x00", "\\x00").encode("utf-8", "backslashreplace").decode("utf-8")
    return kind if len(kind) <= _LIMIT else kind[: _LIMIT - 1] + "…"


class Migration(migrations.Migration):
    """Who paused a run, and which hooks are approvals; and an index for each filter.

    A wake-up writes no more than before: three of the indexes hold fewer runs now.
    """

    dependencies = [("flow_app", "0006_run_blocked_traceback")]

    operations = [
        migrations.AddField("hook", "kind", models.CharField(default="", db_default="", max_length=200)),
        migrations.AddField("run", "paused_by", models.CharField(default="", db_default="", max_length=200)),
        migrations.RemoveIndex("run", "flow_run_workflow_idx"),
        migrations.RemoveIndex("run", "flow_run_finished_idx"),
        migrations.RemoveIndex("run", "flow_run_blocked_idx"),
        migrations.AddIndex("run", models.Index(fields=["workflow", "version", "id"], name="flow_run_workflow_id_idx")),
        migrations.AddIndex("run", models.Index(fields=["version", "id"], name="flow_run_version_idx")),
        migrations.AddIndex("run", models.Index(fields=["build", "id"], name="flow_run_build_idx")),
        migrations.AddIndex(
            "run",
            models.Index(fields=["finished_at"], name="flow_run_ended_idx", condition=Q(finished_at__isnull=False)),
        ),
        migrations.AddIndex(
            "run",
            models.Index(fields=["blocked_since"], name="flow_run_stuck_idx", condition=Q(blocked_since__isnull=False)),
        ),
        migrations.AddIndex(
            "run",
            models.Index(fields=["paused_at"], name="flow_run_paused_idx", condition=Q(paused_at__isnull=False)),
        ),
        migrations.RunPython(name_kinds, migrations.RunPython.noop, elidable=True),
    ]
