from __future__ import annotations

from django.db import migrations

import flow_app.models.fields


class Migration(migrations.Migration):
    dependencies = [
        ("flow_app", "0001_initial"),
    ]

    operations = [
        migrations.AddField(
            model_name="run",
            name="paused_at",
            field=flow_app.models.fields.UtcDateTimeField(null=True),
        ),
    ]
