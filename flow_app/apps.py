from __future__ import annotations

from importlib import import_module

from django.apps import AppConfig
from django.utils.module_loading import autodiscover_modules
from django.utils.translation import gettext_lazy as _


class FlowAppConfig(AppConfig):
    name = "flow_app"
    label = "flow_app"
    verbose_name = _("Workflows")
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        import_module("flow_app.checks")
        import_module("flow_app.checks_celery")
        import_module("flow_app.checks_database")
        autodiscover_modules("workflows")
