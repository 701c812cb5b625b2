from __future__ import annotations

from django.contrib import admin

from project.invoices.models import LedgerEntry, PurchaseOrder, Vendor

admin.site.register([Vendor, PurchaseOrder, LedgerEntry])
