from __future__ import annotations

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("flow_app", "0006_looking_indexes")]

    operations = [
        migrations.AddIndex("hook", models.Index(fields=["token_digest", "id"], name="flow_hook_digest_idx")),
    ]
