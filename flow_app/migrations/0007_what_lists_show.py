from __future__ import annotations

import json
from typing import Any

from django.db import migrations, models
from django.db.models import Q

from flow_app.core.payload import Payload
from flow_app.models.hook import kind_of

_AT_A_TIME = 500


def name_kinds(apps: Any, schema_editor: Any) -> None:
    """Lists say of hooks that wait what they are for; those that are closed are not in them."""
    hooks = apps.get_model("flow_app", "Hook").objects.using(schema_editor.connection.alias)
    named = []
    for hook in hooks.filter(status="active").only("metadata").iterator(chunk_size=_AT_A_TIME):
        hook.kind = kind_of(Payload(json.loads(hook.metadata)))
        if hook.kind:
            named.append(hook)
        hook.metadata = ""  # it may be a megabyte; it is not written
    hooks.bulk_update(named, ["kind"], batch_size=_AT_A_TIME)


class Migration(migrations.Migration):
    """Who paused a run, and which hooks are approvals; and an index for each filter.

    A wake-up writes no more than before: three of the indexes hold fewer runs now.
    """

    dependencies = [("flow_app", "0006_run_blocked_traceback")]

    operations = [
        migrations.AddField("hook", "kind", models.CharField(default="", max_length=200)),
        migrations.AddField("run", "paused_by", models.CharField(default="", max_length=200)),
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
