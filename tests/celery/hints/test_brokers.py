"""Brokers that are away, that say nothing, or that have just dropped a connection: the caller gets its answer."""

from __future__ import annotations

import logging
import socket

import pytest
from celery import Celery
from kombu.transport.memory import Channel, Transport


@pytest.mark.parametrize("url", ["redis://127.0.0.1:1/0", "amqp://guest@127.0.0.1:1//"])
def test_a_broker_that_is_really_not_there(engine, asks, url, use_app, caplog):
    use_app(Celery("elsewhere", broker=url, set_as_current=False))
    with caplog.at_level(logging.WARNING, "flow_app.dispatch"):
        run_id = engine.start(asks)
    assert "the broker is away" in caplog.text
    assert engine.row(run_id).last_sequence == 2


@pytest.fixture
def silence():
    """The port of a server that takes every connection and never says a word."""
    with socket.create_server(("127.0.0.1", 0), backlog=50) as server:
        yield server.getsockname()[1]


@pytest.mark.parametrize("url", ["redis://127.0.0.1:{}/0", "amqp://guest@127.0.0.1:{}//"], ids=["redis", "amqp"])
def test_a_broker_that_accepts_and_never_answers(engine, asks, url, use_app, silence, caplog):
    """The waits are the project's own settings; none is without an end."""
    app = Celery("silent", broker=url.format(silence), set_as_current=False)
    app.conf.broker_connection_timeout = 0.2
    app.conf.broker_transport_options = {"socket_timeout": 0.2, "socket_connect_timeout": 0.2}
    use_app(app)
    with caplog.at_level(logging.WARNING, "flow_app.dispatch"):
        run_id = engine.start(asks)
    assert "the broker is away" in caplog.text
    assert engine.row(run_id).last_sequence == 2


def test_one_connection_that_the_broker_dropped_loses_no_message(engine, asks, use_app, monkeypatch):
    """As after each restart of a broker: the first use of a kept connection fails."""
    post = use_app(Celery("kept", broker="memory://of-its-own"))
    dropped = []
    put = Channel._put

    def fail_once(channel, *args, **kwargs):
        if not dropped:
            dropped.append(True)
            raise OSError("broken pipe")
        return put(channel, *args, **kwargs)

    monkeypatch.setattr(Channel, "_put", fail_once)
    monkeypatch.setattr(Transport, "recoverable_connection_errors", (OSError,), raising=False)
    run_id = engine.start(asks)
    assert [sent.args for sent in post.take()] == [(run_id,)]
