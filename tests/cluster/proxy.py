"""A TCP proxy in front of a server: cut, it is a server that has gone away."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from typing import Self
from urllib.parse import urlsplit


class Proxy:
    def __init__(self, host: str, port: int, url: str) -> None:
        self._target = (host, port)
        self._url = url
        self._listener = self._listen(0)
        self._port = self._listener.getsockname()[1]
        self._open: list[socket.socket] = []
        self._lock = threading.Lock()

    @classmethod
    def to(cls, url: str) -> Self:
        parts = urlsplit(url)
        assert parts.port is not None
        return cls(parts.hostname or "127.0.0.1", parts.port, url)

    @property
    def url(self) -> str:
        return self._url.replace(f":{self._target[1]}", f":{self._port}")

    def __enter__(self) -> Self:
        self._accept_in_background()
        return self

    def __exit__(self, *error: object) -> None:
        self.cut()

    def cut(self) -> None:
        """Refuse new connections, and end those there are."""
        _end(self._listener)
        with self._lock:
            for end in self._open:
                _end(end)
            self._open.clear()

    def mend(self) -> None:
        self._listener = self._listen(self._port)
        self._accept_in_background()

    @staticmethod
    def _listen(port: int) -> socket.socket:
        return socket.create_server(("127.0.0.1", port))

    def _accept_in_background(self) -> None:
        threading.Thread(target=self._accept, args=(self._listener,), daemon=True).start()

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                near, _ = listener.accept()
                far = socket.create_connection(self._target)
            except OSError:
                return
            with self._lock:
                self._open += [near, far]
            for source, sink in ((near, far), (far, near)):
                threading.Thread(target=_carry, args=(source, sink), daemon=True).start()


def _carry(source: socket.socket, sink: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(65536):
            sink.sendall(data)
    _end(source)
    _end(sink)


def _end(end: socket.socket) -> None:
    with suppress(OSError):
        end.shutdown(socket.SHUT_RDWR)
    with suppress(OSError):
        end.close()
