"""A project with an AdminSite of its own, at its own address, on which runs, hooks and a model of its own stand."""

from __future__ import annotations

from django.contrib import admin
from django.urls import path

from flow_app.admin import FlowRunsMixin, HookAdmin, RunAdmin
from flow_app.models import Hook, Run
from project.invoices.models import Vendor

office = admin.AdminSite(name="office")
office.register(Run, RunAdmin)
office.register(Hook, HookAdmin)


@admin.register(Vendor, site=office)
class VendorAdmin(FlowRunsMixin, admin.ModelAdmin):
    fieldsets = (("Vendor", {"fields": ("code", "name")}),)


alone = admin.AdminSite(name="alone")


@admin.register(Vendor, site=alone)
class PlainVendorAdmin(FlowRunsMixin, admin.ModelAdmin):
    fields = ("code", "flow_runs")


runs_only = admin.AdminSite(name="runs_only")
runs_only.register(Run, RunAdmin)

placed = admin.AdminSite(name="placed")


class Mine:
    """Shows what is ours."""

    def get_queryset(self, request):
        return super().get_queryset(request).exclude(**self.others)


@admin.register(Run, site=placed)
class MyRunAdmin(Mine, RunAdmin):
    others = {"run_id": "theirs"}


@admin.register(Hook, site=placed)
class MyHookAdmin(Mine, HookAdmin):
    others = {"run__run_id": "theirs"}


@admin.register(Vendor, site=placed)
class PlacedVendorAdmin(FlowRunsMixin, admin.ModelAdmin):
    fieldsets = (("Vendor", {"fields": ("code", "flow_runs", "name")}),)

    class Media:
        css = {"all": ["own.css"]}


urlpatterns = [
    path("placed/", placed.urls),
    path("office/", office.urls),
    path("alone/", alone.urls),
    path("runs-only/", runs_only.urls),
    path("admin/", admin.site.urls),
]
