"""Metrics served by HTTP: a thread answers with what was seen last, and the process looks meanwhile.

So neither a GPU driver nor a slurmctld that hangs can hang a scrape: how old the values are is one of them.
"""

from __future__ import annotations

import contextlib
import hmac
import ipaddress
import os
import socket
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from dshpc_setup.errors import DshpcError, Exit, Fix, usage_error
from dshpc_setup.machine import Machine
from dshpc_setup.metrics import families, look
from dshpc_setup.metrics.look import Doctor
from dshpc_setup.project import tokens
from dshpc_setup.project.folder import OWN, Project

TOKEN = f"{OWN}/metrics.token"
LOOK_S = 15.0
DOCTOR_S = 300.0
_ASKED_S = 300.0  # so long after a scrape it looks by itself; then at the next one only
_REQUEST_S = 10.0
_MOST_AT_ONCE = 16
_OPENMETRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"
_TEXT = "text/plain; version=0.0.4; charset=utf-8"


class Pages:
    """What is answered; written by one thread, read by others."""

    def __init__(self) -> None:
        self.text = self.openmetrics = b""
        self.ready = threading.Event()
        self.asked = threading.Event()
        self.last_asked = 0.0

    def show(self, snapshot: families.Snapshot) -> None:
        self.text = families.prometheus(snapshot).encode()
        self.openmetrics = families.openmetrics(snapshot).encode()
        self.ready.set()


def address(text: str) -> tuple[str, int]:
    """Of a value of the setting; raises DshpcError (usage) for off."""
    host, _, port = text.rpartition(":")
    if not host:
        raise usage_error(
            "The setting metrics is off: nothing is served.",
            "",
            "Write it into dshpc.yaml: metrics: 127.0.0.1:9410",
        )
    return host.removeprefix("[").removesuffix("]"), int(port)


def token(project: Project, host: str) -> str | None:
    """What a client has to show; None on the loopback. Made at the first time, for the owner alone."""
    if ipaddress.ip_address(host).is_loopback:
        return None
    return tokens.kept(project, TOKEN)


def handler(pages: Pages, wanted: str | None) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        timeout = _REQUEST_S  # a client that says nothing holds a thread no longer
        server_version = "dshpc"
        sys_version = ""

        def do_GET(self) -> None:
            if self.path.partition("?")[0] not in ("/metrics", "/"):
                self._answer(404, b"There is /metrics here.\n")
            elif wanted is not None and not hmac.compare_digest(
                self.headers.get("Authorization", "").encode(), f"Bearer {wanted}".encode()
            ):
                self._answer(401, b"A token is needed: Authorization: Bearer TOKEN\n")
            else:
                pages.last_asked = time.monotonic()
                pages.asked.set()
                if not pages.ready.wait(_REQUEST_S):
                    self._answer(503, b"The first look is not over yet.\n")
                elif "application/openmetrics-text" in self.headers.get("Accept", ""):
                    self._answer(200, pages.openmetrics, _OPENMETRICS)
                else:
                    self._answer(200, pages.text, _TEXT)

        def _answer(self, code: int, body: bytes, kind: str = "text/plain; charset=utf-8") -> None:
            self.send_response(code)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            if code == 401:
                self.send_header("WWW-Authenticate", "Bearer")
            self.end_headers()
            with contextlib.suppress(OSError):
                self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            return None

    return Handler


class Server(ThreadingHTTPServer):
    daemon_threads = True
    allow_reuse_address = True

    def __init__(self, where: tuple[str, int], kind: type[BaseHTTPRequestHandler]) -> None:
        self._open: dict[socket.socket, None] = {}
        self._lock = threading.Lock()
        if ":" in where[0]:
            self.address_family = socket.AF_INET6
        super().__init__(where, kind)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """No more at once than there is room for: the oldest one goes. Who says nothing, or a letter now and
        then, keeps nobody out."""
        with self._lock:
            self._open[request] = None
            oldest = next(iter(self._open)) if len(self._open) > _MOST_AT_ONCE else None
            if oldest is not None:
                del self._open[oldest]
                with contextlib.suppress(OSError):
                    oldest.shutdown(socket.SHUT_RDWR)
        try:
            super().process_request_thread(request, client_address)
        finally:
            with self._lock:
                self._open.pop(request, None)

    def handle_error(self, *_: object) -> None:
        """A client that went away is no matter of ours."""


def opened(where: tuple[str, int], kind: type[BaseHTTPRequestHandler]) -> Server:
    """Raises DshpcError where the address is taken, or is none of this machine."""
    try:
        return Server(where, kind)
    except OSError as error:
        raise DshpcError(
            f"Metrics cannot be served at {where[0]}:{where[1]}: {os.strerror(error.errno or 0)}.",
            "Another program listens there, or the address is not one of this machine.",
            (
                Fix("See who listens", f"ss -ltnp 'sport = :{where[1]}'", step="look"),
                Fix("Choose another port in dshpc.yaml, such as", "metrics: 127.0.0.1:9411"),
            ),
            exit_code=Exit.ERROR,
        ) from None


def serve(machine: Machine, project: Project, *, until: Callable[[], bool] = lambda: False) -> None:
    """Until `until`, or Ctrl-C; raises DshpcError where it cannot listen."""
    host, port = address(project.settings(machine.env).metrics)
    pages = Pages()
    server = opened((host, port), handler(pages, token(project, host)))
    thread = threading.Thread(target=server.serve_forever, name="metrics", daemon=True)
    thread.start()
    doctor: Doctor | None = None

    def is_over() -> bool:
        return until() or not project.own.is_dir()  # nobody can end it by a folder that is gone

    examined = float("-inf")
    try:
        while not is_over():
            began = time.monotonic()
            pages.asked.clear()
            pages.show(families.Snapshot(look.look(machine, project, doctor)))
            if time.monotonic() - examined > DOCTOR_S:
                doctor, examined = look.examine(machine, project), time.monotonic()
                pages.show(families.Snapshot(look.look(machine, project, doctor)))
            left_s = LOOK_S - (time.monotonic() - began)
            if began - pages.last_asked < _ASKED_S:
                _wait(left_s, is_over)
            else:
                while not (pages.asked.wait(1.0) or is_over()):
                    pass
    finally:
        server.shutdown()
        server.server_close()


def _wait(seconds: float, until: Callable[[], bool]) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end and not until():
        time.sleep(min(1.0, max(0.05, end - time.monotonic())))
