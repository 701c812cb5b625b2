from __future__ import annotations

from django.db import migrations, models

import flow_app.models.fields


class Migration(migrations.Migration):
    dependencies = [
        ("flow_app", "0002_run_paused_at"),
    ]

    operations = [
        migrations.AddField("run", "steps_out", models.IntegerField(default=0, db_default=0)),
        migrations.AddField("run", "steps_awaited", models.CharField(default="", db_default="", max_length=3)),
        # No step travelled before: the table is empty.
        migrations.RenameField("stepexecution", "heartbeat_at", "lease_expires_at"),
        migrations.AlterField("stepexecution", "fencing_token", models.CharField(default="", max_length=64)),
        migrations.AddField(
            "stepexecution", "step_name", models.CharField(default="", max_length=200), preserve_default=False
        ),
        migrations.AddField("stepexecution", "input", models.TextField(default=""), preserve_default=False),
        migrations.AddField("stepexecution", "retry", models.TextField(default=""), preserve_default=False),
        migrations.AddField("stepexecution", "spec", models.TextField(default=""), preserve_default=False),
        migrations.AddField("stepexecution", "queue", models.CharField(max_length=200, null=True)),
        migrations.AddField("stepexecution", "timeout_ms", models.BigIntegerField(null=True)),
        migrations.AddField("stepexecution", "times_out_at", flow_app.models.fields.UtcDateTimeField(null=True)),
        migrations.AddField("stepexecution", "late", models.BooleanField(default=False)),
        migrations.AddField("stepexecution", "dispatches", models.IntegerField(default=0)),
    ]
