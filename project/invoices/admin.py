from __future__ import annotations

from django.contrib import admin

from flow_app.admin import FlowRunsMixin
from project.invoices.models import LedgerEntry, PurchaseOrder, Vendor

admin.site.register([Vendor, PurchaseOrder])


@admin.register(LedgerEntry)
class LedgerEntryAdmin(FlowRunsMixin, admin.ModelAdmin):  # type: ignore[type-arg]
    """Its page shows the runs that moved the money."""

    def flow_subject(self, obj: LedgerEntry) -> str:
        return f"invoice:{obj.reference}"
