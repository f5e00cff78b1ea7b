"""A port of this machine's loopback joined to a socket in a job: one program for each connection.

The program is given the connection as its stdin and stdout, and nothing of it passes through here.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import struct
import time
from collections.abc import Callable, Collection, Sequence

HOST = "127.0.0.1"
_LOOK_S = 60.0  # whether it is still there, while nobody is connected
_FAILED_LOOKS = 5
_MOST_AT_ONCE = 200
_SEND_S = 5.0
_ESTABLISHED = "01"  # include/net/tcp_states.h


def gone_page(title: str, command: str) -> bytes:
    """The answer to a browser where nothing listens in the cluster: what it was, and what starts it."""
    page = (
        f"<!doctype html><html lang=en><meta charset=utf-8><title>No {title}</title>"
        f"<p>There is no {title} in the cluster at the moment: its job has ended, or is restarting.</p>"
        f"<p>Start it: <code>{command}</code></p>"
    )
    return _answer("503 Service Unavailable", page)


def _answer(status: str, page: str) -> bytes:
    return (
        f"HTTP/1.1 {status}\r\nContent-Type: text/html; charset=utf-8\r\n"
        f"Content-Length: {len(page)}\r\nCache-Control: no-store\r\nConnection: close\r\n\r\n{page}"
    ).encode()


_NOT_YOURS = _answer(
    "403 Forbidden",
    "<!doctype html><html lang=en><meta charset=utf-8><title>Another user's</title>"
    "<p>This port leads to another user's job. Start one of your own: <code>dshpc lab</code>, "
    "<code>dshpc code</code></p>",
)


def user_of(listed: str, peer: tuple[str, int], port: int) -> int | None:
    """Whose connection it is that leads from `peer` to that port of the loopback, by the kernel's list
    (/proc/net/tcp); None for one that is not open any more."""
    for line in listed.splitlines():
        local, remote, state, *_, uid = line.split()[1:8]
        if (
            state == _ESTABLISHED
            and local.endswith(_as_listed(peer))
            and remote.endswith(_as_listed((HOST, port)))
        ):
            return int(uid)
    return None


def _connections() -> str:
    """ "" where the kernel tells nobody (macOS)."""
    text = ""
    for name in (
        "tcp",
        "tcp6",
    ):  # a socket of version 6 may connect to an address of version 4, too
        with contextlib.suppress(OSError), open(f"/proc/net/{name}", encoding="ascii") as file:
            text += file.read()
    return text


def _as_listed(address: tuple[str, int]) -> str:
    (number,) = struct.unpack("=I", socket.inet_aton(address[0]))
    return f"{number:08X}:{address[1]:04X}"


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
    """`joined`: the words of the program for the next connection; `gone`: the answer where that fails;
    `users`: those whose programs may connect, beside root's. It serves until the other end has been gone for
    some minutes, or a signal ends it."""

    def __init__(
        self,
        listening: socket.socket,
        joined: Callable[[], Sequence[str]],
        gone: bytes,
        users: Collection[int],
    ) -> None:
        self.listening, self.joined, self.gone = listening, joined, gone
        self.port, self.users = listening.getsockname()[1], {0, *users}
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
            connection, peer = self.listening.accept()
            connection.setblocking(True)
            listed = _connections()
            if not listed or user_of(listed, peer, self.port) in self.users:
                self._start(connection)
            else:  # who would have a program started in the cluster for each, and hold up others
                self._tell(connection, _NOT_YOURS, 0)

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
        if failed:  # before a byte has come, as a rule; after that it is one more error
            self._tell(connection, self.gone, _SEND_S)
        else:
            with connection, contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    @staticmethod
    def _tell(connection: socket.socket, text: bytes, wait_s: float) -> None:
        with connection, contextlib.suppress(OSError):
            connection.settimeout(wait_s)
            connection.sendall(text)
            connection.shutdown(socket.SHUT_WR)
            connection.recv(1 << 16)
