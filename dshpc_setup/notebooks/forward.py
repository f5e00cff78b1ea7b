"""A port of this machine's loopback joined to a socket in a job: one program for each connection.

The program is given the connection as its stdin and stdout, and nothing of it passes through here.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import time
from collections.abc import Callable, Sequence

HOST = "127.0.0.1"
_LOOK_S = 60.0  # whether it is still there, while nobody is connected
_FAILED_LOOKS = 5
_MOST_AT_ONCE = 200
_SEND_S = 5.0


def gone_page(title: str, command: str) -> bytes:
    """The answer to a browser where nothing listens in the cluster: what it was, and what starts it."""
    page = (
        f"<!doctype html><html lang=en><meta charset=utf-8><title>No {title}</title>"
        f"<p>There is no {title} in the cluster at the moment: its job has ended, or is restarting.</p>"
        f"<p>Start it: <code>{command}</code></p>"
    )
    return (
        "HTTP/1.1 503 Service Unavailable\r\nContent-Type: text/html; charset=utf-8\r\n"
        f"Content-Length: {len(page)}\r\nCache-Control: no-store\r\nConnection: close\r\n\r\n{page}"
    ).encode()


def listening(port: int = 0) -> socket.socket:
    """A socket on the loopback, on that port where it is free; OSError where there is none at all."""
    for each in dict.fromkeys((port, 0)):
        made = socket.socket(socket.AF_INET)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            made.bind((HOST, each))
            made.listen(128)
        except OSError:
            made.close()
            if each == 0:
                raise
        else:
            return made
    raise AssertionError(port)


class Forwarder:
    """`joined`: the words of the program for the next connection; `gone`: the answer where that fails. It
    serves until the other end has been gone for some minutes, or a signal ends it."""

    def __init__(
        self, listening: socket.socket, joined: Callable[[], Sequence[str]], gone: bytes
    ) -> None:
        self.listening, self.joined, self.gone = listening, joined, gone
        self.connections: dict[
            int, socket.socket | None
        ] = {}  # by process; None: one of our own looks
        self.failed = 0
        self.looked = time.monotonic()

    def serve(self) -> None:
        heard, wake = os.pipe()
        for end in (heard, wake):
            os.set_blocking(end, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        self.listening.setblocking(False)
        while self.failed < _FAILED_LOOKS:
            full = len(self.connections) >= _MOST_AT_ONCE
            watched = [heard] if full else [heard, self.listening.fileno()]
            ready, _, _ = select.select(watched, [], [], _LOOK_S)
            if heard in ready:
                with contextlib.suppress(BlockingIOError):
                    os.read(heard, 4096)
            self._reap()
            if self.listening.fileno() in ready:
                self._accept()
            if not self.connections and time.monotonic() - self.looked >= _LOOK_S:
                self._start(None)

    def _accept(self) -> None:
        with contextlib.suppress(OSError):  # it has gone again
            connection, _ = self.listening.accept()
            connection.setblocking(True)
            self._start(connection)

    def _start(self, connection: socket.socket | None) -> None:
        nothing = os.open(os.devnull, os.O_RDWR)
        end = nothing if connection is None else connection.fileno()
        if connection is None:
            self.looked = time.monotonic()
        try:
            argv = list(self.joined())
            pid = os.posix_spawnp(
                argv[0], argv, os.environ,
                file_actions=[
                    (os.POSIX_SPAWN_DUP2, end, 0),
                    (os.POSIX_SPAWN_DUP2, end, 1),
                    (os.POSIX_SPAWN_DUP2, nothing, 2),
                ],
                setsigdef=[signal.SIGPIPE, signal.SIGCHLD],
            )  # fmt: skip
        except OSError:
            self._end(connection, failed=True)
        else:
            self.connections[pid] = connection
        finally:
            os.close(nothing)

    def _reap(self) -> None:
        while self.connections:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return
            if pid in self.connections:
                failed = os.waitstatus_to_exitcode(status) != 0
                self._end(self.connections.pop(pid), failed=failed)

    def _end(self, connection: socket.socket | None, *, failed: bool) -> None:
        if not failed:
            self.failed, self.looked = 0, time.monotonic()
        if connection is None:
            self.failed += (
                failed  # a page that is open asks on and on: its connections do not count
            )
            return
        with connection:
            if failed:  # before a byte has come, as a rule; after that it is one more error
                connection.settimeout(_SEND_S)
                with contextlib.suppress(OSError):
                    connection.sendall(self.gone)
                    connection.shutdown(socket.SHUT_WR)
                    connection.recv(1 << 16)
            else:
                with contextlib.suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)
