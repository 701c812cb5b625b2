from __future__ import annotations

from django.db import migrations, models
from django.db.models import Q


class Migration(migrations.Migration):
    """Who paused a run; and an index for each filter, without more work per wake-up: three hold fewer runs now."""

    dependencies = [("flow_app", "0005_faces")]

    operations = [
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
    ]
