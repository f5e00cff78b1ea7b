"""A forward proxy that wants a password, and a package mirror behind a certificate of its own."""

from __future__ import annotations

import base64
import http.client
import socket
import ssl
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlsplit

_PASSED = ("if-modified-since", "range", "if-range", "accept", "user-agent")


@dataclass
class Relay:
    """Where it listens and what it was asked: hosts as a proxy, paths as a mirror."""

    port: int
    hosts: set[str] = field(default_factory=set)
    requests: int = 0
    refused: int = 0


class _Handler(BaseHTTPRequestHandler):
    """A proxy where `upstream` is empty, else a front of it; bound to its relay by a subclass."""

    protocol_version = "HTTP/1.1"
    timeout = 60
    relay: Relay
    login = ""
    upstream = ""

    def do_GET(self) -> None:
        wanted = f"Basic {base64.b64encode(self.login.encode()).decode()}"
        if self.login and self.headers.get("Proxy-Authorization") != wanted:
            self._refuse(407)
            return
        target = urlsplit(self.upstream + self.path)
        if not target.hostname or (target.scheme != "http" and not self.upstream):
            self._refuse(403)
            return
        self.relay.requests += 1
        self.relay.hosts.add(target.hostname)
        self._forward(target.scheme, target.netloc, target.path)

    def do_CONNECT(self) -> None:
        self.relay.hosts.add(self.path)
        self._refuse(403)

    def _refuse(self, code: int) -> None:
        self.relay.refused += 1
        self._empty(code)

    def _empty(self, code: int) -> None:
        self.send_response(code)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def _forward(self, scheme: str, netloc: str, path: str) -> None:
        kind = http.client.HTTPSConnection if scheme == "https" else http.client.HTTPConnection
        client = kind(netloc, timeout=60)
        try:
            passed = {key: self.headers[key] for key in _PASSED if key in self.headers}
            client.request("GET", path, headers=passed)
            answer = client.getresponse()
            body = answer.read()
        except OSError:
            self._empty(502)
            return
        finally:
            client.close()
        self.send_response(answer.status)
        for key in ("Content-Type", "Last-Modified", "Content-Range", "Location"):
            value = answer.getheader(key)
            if value:
                self.send_header(key, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base's name
        return None


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        return None  # a client that hangs up is no event


@contextmanager
def serve(
    address: str,
    *,
    login: str = "",
    upstream: str = "",
    certificate: tuple[Path, Path] | None = None,
) -> Iterator[Relay]:
    """A proxy for whoever knows `login` ("user:password"), or a TLS front of `upstream`."""
    relay = Relay(0)
    handler = type("Handler", (_Handler,), {"relay": relay, "login": login, "upstream": upstream})
    with _Server((address, 0), handler) as server:
        if certificate is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(*certificate)
            server.socket = context.wrap_socket(
                server.socket, server_side=True, do_handshake_on_connect=False
            )
        relay.port = server.server_address[1]
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield relay
        finally:
            server.shutdown()
            thread.join(10)


def own_certificate(folder: Path, address: str, name: str) -> tuple[Path, Path]:
    """A certificate for that IP address that signs itself, with `name` as subject; and its key."""
    certificate, key = folder / "relay.pem", folder / "relay.key"
    subprocess.run(
        [
            "openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2",
            "-subj", f"/CN={name}", "-addext", f"subjectAltName=IP:{address},DNS:{address}",
            "-out", str(certificate), "-keyout", str(key),
        ],
        check=True,
        capture_output=True,
        timeout=60,
    )  # fmt: skip
    return certificate, key


def bridge_address() -> str:
    """The address under which containers on the default network reach this machine."""
    done = subprocess.run(
        ["ip", "-4", "-o", "addr", "show", "docker0"],
        capture_output=True,
        text=True,
        timeout=10,
        check=True,
    )
    address = done.stdout.split("inet ")[1].split("/")[0]
    socket.inet_aton(address)
    return address
