"""The signal of the log. Receivers observe, after the commit; what one raises is logged and changes nothing."""

from django.dispatch import Signal

#: Sent for every event, with ``envelope`` (an EventEnvelope); the sender is the workflow's name.
event_recorded = Signal()
