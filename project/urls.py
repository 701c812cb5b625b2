from __future__ import annotations

from django.contrib import admin
from django.templatetags.static import static
from django.urls import include, path
from django.views.generic import RedirectView
from drf_spectacular.views import SpectacularAPIView

from project.invoices.views import send_an_invoice

urlpatterns = [
    path("", RedirectView.as_view(pattern_name="admin:index")),
    path("send-an-invoice/", send_an_invoice, name="send-an-invoice"),
    path("admin/", admin.site.urls),
    path("api/flow/", include("flow_app.api.urls")),
    path("api/schema/", SpectacularAPIView.as_view(), name="schema"),
    path("api-auth/", include("rest_framework.urls")),
    # No page names an icon: browsers ask for this one then.
    path("favicon.ico", RedirectView.as_view(url=static("invoices/icon.svg"))),
]
