from django.db import migrations


class Migration(migrations.Migration):
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
    ]
