"""Who listens, read from /proc: a connection to slurmctld would be logged by it as an error."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable

_LISTEN = "0A"
_POLL_S = 0.002


def listening_ports(table: str) -> set[int]:
    """Ports in state LISTEN of a /proc/net/tcp or tcp6."""
    ports = set()
    for line in table.splitlines()[1:]:
        fields = line.split(maxsplit=4)
        if len(fields) > 3 and fields[3] == _LISTEN:
            ports.add(int(fields[1].rpartition(":")[2], 16))
    return ports


def listens(port: int) -> bool:
    for path in ("/proc/net/tcp", "/proc/net/tcp6"):
        try:
            with open(path, encoding="ascii") as file:
                if port in listening_ports(file.read()):
                    return True
        except FileNotFoundError:  # a kernel without IPv6
            continue
    return False


def wait_listening(port: int, deadline_s: float, gave_up: Callable[[], bool]) -> bool:
    """Whether someone listens before the time is up or `gave_up` says that nobody will."""
    until = time.monotonic() + deadline_s
    while time.monotonic() < until:
        if listens(port):
            return True
        if gave_up():
            return False
        time.sleep(_POLL_S)
    return False


def spare_port() -> int:
    """A port that nobody uses now."""
    import socket

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def reaped(pid: int) -> bool:
    """Whether our child has ended (and is taken off the list then)."""
    try:
        return os.waitpid(pid, os.WNOHANG)[0] == pid
    except ChildProcessError:
        return True


def end(pid: int) -> None:
    """TERM, and KILL for what does not end by that."""
    for number, grace_s in ((signal.SIGTERM, 3.0), (signal.SIGKILL, 1.0)):
        if reaped(pid):
            return
        os.kill(pid, number)
        until = time.monotonic() + grace_s
        while time.monotonic() < until:
            if reaped(pid):
                return
            time.sleep(_POLL_S)
