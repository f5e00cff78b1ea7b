"""Addresses of this machine, and what is reached from here: asked by trying."""

from __future__ import annotations

import errno
import fcntl
import socket
import struct

_GET_ADDRESS = 0x8915  # SIOCGIFADDR of netdevice(7)


def of_interface(name: str) -> str | None:
    """The first IPv4 address of a network interface; None where there is no such one, or it has none."""
    raw = name.encode()
    if not 0 < len(raw) < 16:
        return None
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asks:
        try:
            answer = fcntl.ioctl(asks.fileno(), _GET_ADDRESS, struct.pack("=16s24x", raw))
        except OSError:
            return None
    return socket.inet_ntoa(answer[20:24])


def is_here(address: str) -> bool:
    """Whether one may listen at it: it is this machine's."""
    with socket.socket() as tried:
        try:
            tried.bind((address, 0))
        except OSError:
            return False
    return True


def why_not_reached(address: str, port: int, deadline_s: float) -> int | None:
    """None where somebody answers there; else the error's number, that of a timeout where nobody does."""
    try:
        socket.create_connection((address, port), timeout=deadline_s).close()
    except TimeoutError:
        return errno.ETIMEDOUT
    except OSError as error:
        return error.errno or errno.EIO
    return None


def towards(address: str) -> str:
    """The address of this machine from which it speaks to another; raises OSError where there is no way."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asks:
        asks.connect((address, 9))  # of UDP: nothing is sent
        own: str = asks.getsockname()[0]
        return own
