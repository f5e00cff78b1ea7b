"""A browser's WebSocket, as far as the tests need one."""

from __future__ import annotations

import socket
import ssl
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from wsproto import ConnectionType, WSConnection
from wsproto.events import (
    AcceptConnection,
    BytesMessage,
    CloseConnection,
    Ping,
    RejectConnection,
    Request,
    TextMessage,
)


@dataclass
class WebSocket:
    """What came over it: `said` of bytes, `words` of texts; `closed` by which code, `refused` by which
    status."""

    line: socket.socket
    talk: WSConnection
    said: bytes = b""
    words: list[str] = field(default_factory=list)
    closed: int | None = None
    refused: int | None = None
    is_open: bool = False

    def send(self, data: bytes | str) -> None:
        made = BytesMessage(data) if isinstance(data, bytes) else TextMessage(data)
        self.line.sendall(self.talk.send(made))

    def until(self, wanted: bytes, timeout_s: float = 60) -> str:
        """All that it said, once it has said that, or was closed."""
        end = time.monotonic() + timeout_s
        while wanted not in self.said and self.closed is None and self.refused is None:
            left = end - time.monotonic()
            assert left > 0, f"{wanted!r} was not said: {self.said!r}"
            self._hear(left)
        return self.said.decode(errors="replace")

    def _hear(self, timeout_s: float) -> None:
        self.line.settimeout(timeout_s)
        data = self.line.recv(1 << 16)
        self.talk.receive_data(data or None)
        for event in self.talk.events():
            if isinstance(event, AcceptConnection):
                self.is_open = True
            elif isinstance(event, RejectConnection):
                self.refused = event.status_code
            elif isinstance(event, BytesMessage):
                self.said += bytes(event.data)
            elif isinstance(event, TextMessage):
                self.words.append(event.data)
            elif isinstance(event, Ping):
                self.line.sendall(self.talk.send(event.response()))
            elif isinstance(event, CloseConnection):
                self.closed = event.code
        if not data and self.closed is None:
            self.closed = 1006


@contextmanager
def web_socket(
    port: int, path: str, headers: Mapping[str, str], tls: ssl.SSLContext | None = None
) -> Iterator[WebSocket]:
    """Opened, or refused."""
    plain = socket.create_connection(("127.0.0.1", port), timeout=20)
    with plain if tls is None else tls.wrap_socket(plain, server_hostname="127.0.0.1") as line:
        talk = WSConnection(ConnectionType.CLIENT)
        given = [(name.encode(), value.encode()) for name, value in headers.items()]
        host = headers.get("Host", f"127.0.0.1:{port}")
        given = [pair for pair in given if pair[0] != b"Host"]
        line.sendall(talk.send(Request(host=host, target=path, extra_headers=given)))
        made = WebSocket(line, talk)
        while not made.is_open and made.refused is None and made.closed is None:
            made._hear(20)
        yield made
