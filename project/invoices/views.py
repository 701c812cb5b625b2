from __future__ import annotations

from django.http import HttpRequest, HttpResponseRedirect

from project.invoices.visitor import start_address


def send_an_invoice(request: HttpRequest) -> HttpResponseRedirect:
    """To the admin's form, filled in with an invoice that nobody has sent yet."""
    return HttpResponseRedirect(start_address())
