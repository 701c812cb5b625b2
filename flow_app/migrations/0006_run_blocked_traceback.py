from __future__ import annotations

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("flow_app", "0005_faces")]

    operations = [
        migrations.AddField(
            model_name="run",
            name="blocked_traceback",
            field=models.TextField(default="", db_default=""),
        ),
    ]
