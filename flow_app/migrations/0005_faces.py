from __future__ import annotations

from django.db import migrations, models

from flow_app.models.fields import UtcDateTimeField


class Migration(migrations.Migration):
    """What the admin and the API need: permissions, indexes for what people ask for, since when a hook waits."""

    dependencies = [("flow_app", "0004_event_run_unconstrained")]

    operations = [
        migrations.AlterModelOptions(
            name="run",
            options={
                "permissions": [
                    ("start_run", "Can start runs"),
                    ("resume_hook", "Can answer and withdraw hooks"),
                    ("cancel_run", "Can ask runs to cancel"),
                    ("terminate_run", "Can end runs at once, without clean-up"),
                    ("operate_run", "Can pause runs, let them go on, and run them now"),
                    ("view_payload", "Can see inputs, outputs and other payloads"),
                ],
                "verbose_name": "run",
                "verbose_name_plural": "runs",
            },
        ),
        migrations.AlterField("run", "run_id", models.CharField("run id", max_length=200)),
        migrations.AlterField("run", "created_at", UtcDateTimeField("started")),
        migrations.AlterField("run", "finished_at", UtcDateTimeField("ended", null=True)),
        migrations.AlterField("hook", "hook_id", models.CharField("hook id", max_length=200)),
        migrations.AddField("hook", "created_at", UtcDateTimeField(null=True)),
        migrations.AddIndex("run", models.Index(fields=["status", "id"], name="flow_run_status_idx")),
        migrations.AddIndex("run", models.Index(fields=["workflow", "version"], name="flow_run_workflow_idx")),
        migrations.AddIndex("run", models.Index(fields=["created_at"], name="flow_run_created_idx")),
        migrations.AddIndex("run", models.Index(fields=["finished_at"], name="flow_run_finished_idx")),
        migrations.AddIndex("run", models.Index(fields=["blocked_since"], name="flow_run_blocked_idx")),
        migrations.AddIndex(
            "run", models.Index(fields=["run_id"], name="flow_run_prefix_idx", opclasses=["varchar_pattern_ops"])
        ),
        migrations.AddIndex("hook", models.Index(fields=["status", "id"], name="flow_hook_status_idx")),
        migrations.AddIndex("hook", models.Index(fields=["token_digest", "id"], name="flow_hook_digest_idx")),
    ]
