"""Who listens, asked of the kernel: a connection to slurmctld would be logged by it as an error."""

from __future__ import annotations

import os
import signal
import struct
import time
from collections.abc import Callable

from dshpc_setup.machine.listeners import LISTEN, listeners

_POLL_S = 0.002
_DIAG = 4  # NETLINK_SOCK_DIAG
_BY_FAMILY = 20  # SOCK_DIAG_BY_FAMILY, the type of a request and of what it finds
_DUMP = 0x301  # NLM_F_REQUEST | NLM_F_DUMP
_TCP = 6
_ANSWER_S = 1.0


def found_ports(answer: bytes) -> set[int] | None:
    """Ports that a datagram of sock_diag(7) tells of; None for a refusal or what is no such answer."""
    ports = set()
    while len(answer) >= 16:
        length, kind = struct.unpack_from("=IH", answer)
        if kind == _BY_FAMILY and length >= 22 <= len(answer):
            ports.add(int.from_bytes(answer[20:22], "big"))  # idiag_sport of inet_diag_msg
        elif kind == 3:  # NLMSG_DONE
            return ports
        else:
            return None
        answer = answer[(length + 3) & ~3 :]
    return ports or None


def listens(port: int) -> bool:
    """Whether somebody listens on the port.

    By sock_diag(7): /proc/net/tcp takes 6 ms to read where the kernel's table of connections is large,
    and is read only where the other is not to be had.
    """
    import socket

    try:
        families = (_ask(socket.AF_INET, port), _ask(socket.AF_INET6, port))
    except OSError:
        families = (None, None)
    if None not in families:
        return any(port in found for found in families if found)
    return any(found.port == port for found in listeners())


def _ask(family: int, port: int) -> set[int] | None:
    import socket

    wanted = struct.pack("=BBBxI", family, _TCP, 0, 1 << int(LISTEN, 16))
    whole = wanted + struct.pack("!H46x", port)  # inet_diag_sockid: its source port alone
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _DIAG) as kernel:
        kernel.settimeout(_ANSWER_S)
        kernel.send(struct.pack("=IHHII", 16 + len(whole), _BY_FAMILY, _DUMP, 1, 0) + whole)
        return found_ports(kernel.recv(65536))


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
