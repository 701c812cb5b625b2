from __future__ import annotations

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("flow_app", "0005_run_permissions")]

    operations = [
        migrations.AddIndex("hook", models.Index(fields=["status", "id"], name="flow_hook_status_idx")),
        migrations.AddIndex("run", models.Index(fields=["status", "id"], name="flow_run_status_idx")),
        migrations.AddIndex("run", models.Index(fields=["workflow", "version"], name="flow_run_workflow_idx")),
        migrations.AddIndex("run", models.Index(fields=["created_at"], name="flow_run_created_idx")),
        migrations.AddIndex("run", models.Index(fields=["finished_at"], name="flow_run_finished_idx")),
        migrations.AddIndex("run", models.Index(fields=["blocked_since"], name="flow_run_blocked_idx")),
        migrations.AddIndex(
            "run", models.Index(fields=["run_id"], name="flow_run_prefix_idx", opclasses=["varchar_pattern_ops"])
        ),
    ]
