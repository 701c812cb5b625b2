"""The broker of these tests: queues in memory, which a test reads, and works off when it wants to."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from celery import Celery
from kombu.transport.memory import Channel, Transport


@dataclass(frozen=True)
class Sent:
    """A message as a worker gets it."""

    task: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    headers: dict[str, Any] = field(repr=False)

    @property
    def text(self) -> str:
        """Everything that the broker got to see."""
        return repr((self.task, self.args, self.kwargs, self.headers))


class Post:
    """What an app has sent, by queue."""

    def __init__(self, app: Celery) -> None:
        self.app = app

    def take(self, queue: str = "celery") -> list[Sent]:
        """The messages of a queue, which are then gone from it."""
        return list(self._take(queue))

    def _take(self, queue: str) -> Iterator[Sent]:
        with self.app.connection_for_read() as connection, connection.SimpleQueue(queue) as letters:
            while letters.qsize():
                letter = letters.get_nowait()
                letter.ack()
                args, kwargs, _embed = letter.payload
                yield Sent(letter.headers["task"], tuple(args), kwargs, letter.headers)

    def deliver(self, sent: Sent) -> None:
        """Be a worker that gets this message."""
        self.app.tasks[sent.task].apply(sent.args, sent.kwargs, task_id=sent.headers["id"], throw=True)

    def deliver_all(self, queue: str = "celery") -> list[Sent]:
        """Be a worker until the queue is empty; what was in it."""
        seen: list[Sent] = []
        while letters := self.take(queue):
            for sent in letters:
                self.deliver(sent)
            seen += letters
        return seen

    def queues(self) -> set[str]:
        """The queues that hold anything."""
        return {name for name, letters in Channel.queues.items() if letters.qsize()}


def forget_all() -> None:
    Channel.queues.clear()
    Transport.global_state.clear()
