"""A local engine asked over its socket in two plain requests, as the SDK would ask it.

The SDK's import takes a tenth of a second and more, which is most of what `dshpc detect` takes. What
goes beyond plain answers (TLS, ssh, a proxy that speaks in chunks) is left to it.
"""

from __future__ import annotations

import re
import time
from typing import Any

from dshpc_setup.documents import foreign
from dshpc_setup.machine import Reply

_OLDEST_API = (1, 24)  # what the SDK speaks
_MOST_BYTES = 8 << 20
_BLOCK = 1 << 16
_MOST_HEAD = 1 << 14


class NotPlainError(Exception):
    """An answer that is for the SDK to understand."""


def ask(path: str, where: dict[str, Any], deadline_s: float) -> Reply | None:
    """The reply that docker_api.ask promises; None where the SDK has to find out."""
    until = time.monotonic() + deadline_s
    host = where["host"]
    try:
        version = _get(path, "/version", until)
        api = re.fullmatch(r"(\d{1,3})\.(\d{1,3})", str(version.get("ApiVersion")), re.ASCII)
        if api is None or (int(api[1]), int(api[2])) < _OLDEST_API:
            return None
        info = _get(path, f"/v{api[0]}/info", until)
    except (TimeoutError, BlockingIOError):  # nobody takes us from its queue, which is full
        return Reply("timeout", dict(where), host, f"no answer within {deadline_s:g} s")
    except PermissionError as error:
        return Reply("denied", dict(where), host, error.strerror, error.errno)
    except (FileNotFoundError, ConnectionRefusedError) as error:
        return Reply("absent", dict(where), host, error.strerror, error.errno)
    except (OSError, NotPlainError):
        return None
    return Reply("present", {"version": version, "info": info, **where}, host)


def _get(path: str, what: str, until: float) -> dict[str, Any]:
    import socket

    with socket.socket(socket.AF_UNIX) as server:
        server.settimeout(_left(until))
        server.connect(path)
        # HTTP 1.0: the answer comes in one piece, and ends where the connection does
        request = f"GET {what} HTTP/1.0\r\nHost: docker\r\nConnection: close\r\n\r\n"
        server.sendall(request.encode())
        answer = bytearray()
        while len(answer) < _MOST_BYTES and not _is_whole(answer):
            server.settimeout(_left(until))
            block = server.recv(_BLOCK)
            if not block:
                break
            answer += block
    head, _, body = bytes(answer).partition(b"\r\n\r\n")
    if not re.match(rb"HTTP/1\.[01] 200 ", head) or b"chunked" in head.lower():
        raise NotPlainError
    try:
        value = foreign.value(body)
    except (ValueError, RecursionError) as error:
        raise NotPlainError from error
    if not isinstance(value, dict):
        raise NotPlainError
    return value


def _is_whole(answer: bytearray) -> bool:
    """Whether it is as long as it says: some proxy may keep the connection for more."""
    head, end, _ = bytes(answer[:_MOST_HEAD]).partition(b"\r\n\r\n")
    told = (
        re.search(rb"(?i)\r\ncontent-length:[ \t]*(\d{1,8})[ \t]*(?=\r\n|$)", head) if end else None
    )
    return told is not None and len(answer) - len(head) - len(end) >= int(told[1])


def _left(until: float) -> float:
    left_s = until - time.monotonic()
    if left_s <= 0:
        raise TimeoutError
    return left_s
