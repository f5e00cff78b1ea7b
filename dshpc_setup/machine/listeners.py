"""Who listens on this machine, by the kernel's tables (proc_net_tcp.txt of the kernel); and we ourselves."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from dataclasses import dataclass

LISTEN = "0A"  # of net/tcp_states.h


@dataclass(frozen=True)
class Listener:
    """A socket that listens; `uid` is whose it is."""

    port: int
    uid: int
    inode: int


def listeners() -> Iterator[Listener]:
    """Those of IPv4 first; a table that cannot be read has none, as on a kernel without IPv6."""
    for path in ("/proc/net/tcp", "/proc/net/tcp6"):
        try:
            with open(path, encoding="ascii") as file:
                table = file.read()
        except OSError:
            continue
        yield from parse(table)


def parse(table: str) -> Iterator[Listener]:
    """Lines that are none are passed over."""
    for line in table.splitlines()[1:]:
        fields = line.split(maxsplit=10)
        if len(fields) < 10 or fields[3] != LISTEN:
            continue
        try:
            port = int(fields[1].rpartition(":")[2], 16)
            yield Listener(port, int(fields[7]), int(fields[9]))
        except ValueError:
            continue


def listen(address: str, port: int) -> socket.socket:
    """A socket that listens there, at any free port where it is 0; raises OSError."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    return socket.create_server((address, port), family=family, backlog=128)
