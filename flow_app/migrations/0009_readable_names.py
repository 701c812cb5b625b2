from django.db import migrations, models

from flow_app.models.fields import UtcDateTimeField


class Migration(migrations.Migration):
    dependencies = [("flow_app", "0008_hook_created_at")]

    operations = [
        migrations.AlterField("hook", "hook_id", models.CharField("hook id", max_length=200)),
        migrations.AlterField("run", "created_at", UtcDateTimeField("started")),
        migrations.AlterField("run", "finished_at", UtcDateTimeField("ended", null=True)),
        migrations.AlterField("run", "run_id", models.CharField("run id", max_length=200)),
    ]
