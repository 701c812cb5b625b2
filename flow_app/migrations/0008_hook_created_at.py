from django.db import migrations

import flow_app.models.fields


class Migration(migrations.Migration):
    dependencies = [("flow_app", "0007_hook_token_index")]

    operations = [
        migrations.AddField("hook", "created_at", flow_app.models.fields.UtcDateTimeField(null=True)),
    ]
