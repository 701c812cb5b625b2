"""The event store on the project's own database."""

from __future__ import annotations

from flow_app.store.reading import Reading
from flow_app.store.travelling import Travelling


class DjangoEventStore(Travelling, Reading):
    """The log and its projections in the database behind one alias; see :class:`flow_app.core.ports.EventStore`.

    ``DjangoEventStore("default")`` chooses the clock that fits the database; tests give a clock of their own. An
    instance holds no connection and may be shared by threads.
    """
