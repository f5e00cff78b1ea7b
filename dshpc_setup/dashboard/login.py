"""Who came through the reverse proxy: what its requests must be, and what becomes of their heads. Pure.

See docs/decisions/0070-dashboard-for-others.md.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal
from urllib.parse import urlsplit

from dshpc_setup.errors import usage_error

Headers = Sequence[tuple[bytes, bytes]]
Network = ipaddress.IPv4Network | ipaddress.IPv6Network
Refusal = Literal["address", "host", "origin", "login"]

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}")
_HEADER = re.compile(r"[A-Za-z0-9-]{1,64}")
_OURS = ("connection", "host", "origin", "cookie", "authorization", "keep-alive", "te", "trailer", "upgrade",
         "proxy-authorization", "proxy-connection")  # fmt: skip
# Of a head that could mean another one to a server that reads them otherwise
_PLAIN = re.compile(rb"[A-Za-z0-9-]+")


@dataclass(frozen=True)
class Proxy:
    """Who logs users in: from which addresses it comes, in which header it names them, and the names by
    which browsers call it."""

    header: str
    networks: tuple[Network, ...]
    names: tuple[str, ...]


def proxy(header: str, addresses: str, names: str) -> Proxy:
    """Of the command line; raises DshpcError (usage)."""
    if not _HEADER.fullmatch(header) or header.lower() in _OURS:
        raise usage_error(
            f"--login-header {header}: that can be no header with a login name.",
            "",
            "Such as: --login-header X-Forwarded-Preferred-Username",
        )
    try:
        networks = tuple(ipaddress.ip_network(each.strip()) for each in addresses.split(","))
    except ValueError as error:
        raise usage_error(
            f"--login-from {addresses}: that is no list of addresses.",
            f"{error}.",
            "Such as: --login-from 10.0.0.5, or: --login-from 10.0.0.5,fd00::5",
        ) from None
    if any(each.num_addresses > 256 for each in networks):
        raise usage_error(
            f"--login-from {addresses}: that is more than a proxy's addresses.",
            "Whoever has one of them can say that he is anybody.",
            "Name the proxy's own address.",
        )
    found = tuple(each.strip().lower() for each in names.split(","))
    if not all(
        re.fullmatch(r"[a-z0-9.-]+(:\d{1,5})?|\[[0-9a-f:]+\](:\d{1,5})?", name) for name in found
    ):
        raise usage_error(
            f"--name {names}: that is no host's name.",
            "",
            "As in the browser's address: --name gpu.example.org",
        )
    return Proxy(header.lower(), networks, found)


def is_from(of: Proxy, peer: str) -> bool:
    """Whether a connection from that address is the proxy's."""
    address = ipaddress.ip_address(peer.partition("%")[0])
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped:
        address = address.ipv4_mapped
    return any(address in each for each in of.networks)


def user(of: Proxy, peer: str, headers: Headers) -> tuple[str, Refusal | None]:
    """The login name, or what is wrong with the request."""
    if not is_from(of, peer):
        return "", "address"
    values: dict[str, list[str]] = {}
    for name, value in headers:
        values.setdefault(name.decode("latin-1").lower(), []).append(value.decode("latin-1"))
    hosts, origins = values.get("host", []), values.get("origin", [])
    if len(hosts) != 1 or hosts[0].lower() not in of.names:
        return "", "host"
    if len(origins) > 1 or any(not _is_ours(of, each) for each in origins):
        return "", "origin"
    if opens_socket(headers) and not origins:
        return "", "origin"
    names = values.get(of.header, [])
    if len(names) != 1 or not _NAME.fullmatch(names[0]):
        return "", "login"
    return names[0], None


def _is_ours(of: Proxy, origin: str) -> bool:
    parts = urlsplit(origin)
    return parts.scheme == "https" and parts.netloc.lower() in of.names


def opens_socket(headers: Headers) -> bool:
    """Whether it asks for a WebSocket."""
    return any(
        name.lower() == b"upgrade" and value.strip().lower() == b"websocket"
        for name, value in headers
    )


def handed_on(of: Proxy, headers: Headers, port: int, cookie: str) -> list[tuple[bytes, bytes]]:
    """The head for a user's own dashboard on the loopback: with its cookie in place of all that the browser
    and the proxy know each other by. One request for each connection."""
    here = f"127.0.0.1:{port}"
    given = {name.lower() for name, _ in headers}
    left_out = {*_OURS, of.header}
    kept = [
        (name, value)
        for name, value in headers
        if _PLAIN.fullmatch(name) and name.decode("latin-1").lower() not in left_out
    ]
    upgrade = opens_socket(headers)
    return [
        (b"Host", here.encode()),
        (b"Cookie", cookie.encode()),
        *([(b"Origin", f"http://{here}".encode())] if b"origin" in given else []),
        (b"Connection", b"Upgrade" if upgrade else b"close"),
        *([(b"Upgrade", b"websocket")] if upgrade else []),
        *kept,
    ]


WORDS: Mapping[Refusal, tuple[int, str]] = {
    "address": (403, "Only the reverse proxy is answered here."),
    "host": (400, "This host name is not the dashboard's."),
    "origin": (403, "Another page sent this."),
    "login": (401, "The reverse proxy has named no user."),
}
