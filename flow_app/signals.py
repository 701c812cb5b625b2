"""The signal of the log. Receivers observe, after the commit; what one raises is logged and changes nothing."""

from __future__ import annotations

from typing import Any

from django.dispatch import Signal


class WorkflowSignal(Signal):
    """A signal whose senders are names of workflows. Django tells senders apart by identity, and names are read anew
    from the database each time: here equal names are one sender.
    """

    def __init__(self) -> None:
        super().__init__()
        self._senders: dict[str, str] = {}

    def _sender(self, sender: Any) -> Any:
        return self._senders.setdefault(sender, sender) if isinstance(sender, str) else sender

    def connect(self, receiver: Any, sender: Any = None, weak: bool = True, dispatch_uid: Any = None) -> None:
        super().connect(receiver, self._sender(sender), weak, dispatch_uid)

    def disconnect(self, receiver: Any = None, sender: Any = None, dispatch_uid: Any = None) -> bool:
        return super().disconnect(receiver, self._sender(sender), dispatch_uid)

    def has_listeners(self, sender: Any = None) -> bool:
        return super().has_listeners(self._sender(sender))

    def send_robust(self, sender: Any, **named: Any) -> Any:
        return super().send_robust(self._sender(sender), **named)


#: Sent for every event, with ``envelope`` (an EventEnvelope); the sender is the workflow's name.
event_recorded = WorkflowSignal()
