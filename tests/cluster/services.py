"""The servers that these tests need. Missing ones skip a test; in CI that is a failure."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Protocol
from urllib.parse import urlsplit

import pytest
import redis
from amqp.exceptions import NotFound
from kombu import Connection


class Broker(Protocol):
    url: str
    settings: dict[str, object]

    def also(self, queue: str) -> None:
        """One more queue to flush and to remove."""

    def waiting(self, queue: str) -> int:
        """How many messages nobody has taken."""

    def flush(self) -> None:
        """Lose every message that waits."""

    def close(self) -> None:
        """Leave nothing behind."""


class Redis:
    """Keys under a prefix of the test's own."""

    def __init__(self, name: str, url: str | None = None) -> None:
        self.url = url or os.environ.get("FLOW_TEST_REDIS_URL", "redis://127.0.0.1:6379/0")
        self._prefix = f"{name}:"
        # Restore what a killed worker held soon: the tests must not depend on it, nor be spared the duplicates.
        options = {
            "global_keyprefix": self._prefix,
            "visibility_timeout": 5,
            "unacked_restore_interval": 1,
            "unacked_restore_throttle": 1,
        }
        self.settings: dict[str, object] = {"broker_transport_options": options}

    def waiting(self, queue: str) -> int:
        with redis.Redis.from_url(self.url) as client:
            return int(client.llen(f"{self._prefix}{queue}"))

    def flush(self) -> None:
        with redis.Redis.from_url(self.url) as client:
            keys = list(client.scan_iter(match=f"{self._prefix}*", count=1000))
            if keys:
                client.delete(*keys)

    close = flush

    def also(self, queue: str) -> None: ...  # it has the prefix, too


class RabbitMQ:
    """Queues of the test's own."""

    def __init__(self, name: str, url: str | None = None) -> None:
        self.url = url or os.environ.get("FLOW_TEST_RABBITMQ_URL", "amqp://guest:guest@127.0.0.1:5672//")
        self._queues = [name]
        self.settings: dict[str, object] = {"broker_heartbeat": 0}

    def also(self, queue: str) -> None:
        self._queues.append(queue)

    def waiting(self, queue: str) -> int:
        with Connection(self.url) as connection:
            try:
                return int(connection.channel().queue_declare(queue, passive=True).message_count)
            except NotFound:
                return 0

    def flush(self) -> None:
        self._for_each_queue(lambda channel, queue: channel.queue_purge(queue))

    def close(self) -> None:
        self._for_each_queue(lambda channel, queue: channel.queue_delete(queue))
        self._for_each_queue(lambda channel, queue: channel.exchange_delete(queue))

    def _for_each_queue(self, act: Callable[[Any, str], object]) -> None:
        with Connection(self.url) as connection:
            for queue in self._queues:
                with suppress(NotFound):
                    act(connection.channel(), queue)


BROKERS = {"redis": Redis, "rabbitmq": RabbitMQ}
_PORTS = {"redis": 6379, "amqp": 5672}


def require(url: str) -> None:
    """Skip the test when the server does not answer; in CI fail it."""
    parts = urlsplit(url)
    port = parts.port or _PORTS[parts.scheme]
    try:
        socket.create_connection((parts.hostname or "127.0.0.1", port), timeout=3).close()
    except OSError as error:
        text = f"needs a server at {parts.hostname}:{port} ({error})"
        if os.environ.get("CI"):
            pytest.fail(text)
        pytest.skip(text)
