"""The demo, and then the site: worker, beat and server in one process, until somebody ends it.

Over the memory transport everything is in this process; over a real broker worker and beat are processes.
"""

from __future__ import annotations

import io
import signal
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

from django.contrib.staticfiles.management.commands.runserver import Command as RunServer
from django.core.management import call_command
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.urls import reverse

from project import systems
from project.invoices import visitor
from project.invoices.management.commands.invoices_demo import NAP, PATIENCE, failed_attempts_unlogged

HOST = "127.0.0.1"


class Command(BaseCommand):
    help = "Run the demo, leave some runs to a visitor, and serve the site until interrupted."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--port", type=int, default=8000, help="where the site is served")
        parser.add_argument("--limit", type=int, metavar="N", help="take only the first N rows of the demo's file")

    def handle(self, *, port: int, limit: int | None, **options: Any) -> None:
        refuse_taken(port)
        with ended_in_order():
            call_command("invoices_demo", limit=limit, stdout=self.stdout)
            with failed_attempts_unlogged(), systems.start() as system:
                settle(visitor.leave_runs(), system)
                serve(port, welcome(f"http://{HOST}:{port}", visitor.let_in()), self.stdout)


def refuse_taken(port: int) -> None:
    """Before the demo, and not after it. Raises CommandError."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError as error:
            raise CommandError(f"{HOST}:{port} cannot be had ({error}). Take another: make site PORT=8001") from None


@contextmanager
def ended_in_order() -> Iterator[None]:
    """SIGTERM ends the system as an interrupt does, and not in its middle."""

    def leave(signum: int, frame: Any) -> NoReturn:
        sys.exit(0)

    before = signal.signal(signal.SIGTERM, leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def settle(run_ids: set[str], system: systems.System) -> None:
    """Let the runs come as far as they can without the visitor. Raises CommandError when they do not."""
    give_up = time.monotonic() + PATIENCE
    while not visitor.are_settled(run_ids):
        if time.monotonic() > give_up:
            raise CommandError(f"The runs for the visitor have not settled within {PATIENCE} seconds.")
        system.check()
        time.sleep(NAP)


def serve(port: int, greeting: str, stdout: Any) -> NoReturn:
    """Serve the site, and say so as soon as it is there. An interrupt ends this with status 0."""

    class Server(RunServer):
        def on_bind(self, server_port: int) -> None:
            stdout.write(greeting)
            stdout.flush()

    call_command(Server(stdout=io.StringIO()), f"{HOST}:{port}", use_reloader=False)
    sys.exit(0)


def welcome(site: str, password: str) -> str:
    approvals = ", ".join(left.run_id for left in visitor.TO_APPROVE)
    addresses = {
        "Admin": reverse("admin:index"),
        "Runs": reverse("admin:flow_app_run_changelist"),
        "Hook inbox": reverse("admin:flow_app_hook_changelist"),
        "API": reverse("flow_app_api:root"),
    }
    return "\n".join(
        [
            "",
            *(f"  {name:<12}{site}{path}" for name, path in addresses.items()),
            f"  {'Log in as':<12}{visitor.NAME}, password {password}",
            "",
            f"Waiting for your approval: {approvals}",
            f"To be cancelled:           {visitor.TO_CANCEL.run_id} (it gives its order back)",
            f"Blocked, and says why:     {visitor.BLOCKED.run_id}",
            f"An invoice to start:       {site}{reverse('send-an-invoice')}",
            "",
            "Ctrl-C ends the site.",
        ]
    )
