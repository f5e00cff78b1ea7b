"""How the text of a setting that is an address or a port is read; see `texts`."""

from __future__ import annotations

import ipaddress
import re

from dshpc_setup.settings.texts import count


def ports(text: str) -> tuple[int, ...]:
    """Two or more different ports that an ordinary user may listen on."""
    found = tuple(count(item.strip()) for item in text.split(","))
    if (
        len(found) < 2
        or len(set(found)) < len(found)
        or not all(1024 <= it < 65536 for it in found)
    ):
        raise ValueError("must be two different ports from 1024 to 65535: 6817,6818")
    return found


def listen(text: str) -> str:
    """off, an IPv4 address that other machines can reach, or an interface's name (netdevice(7))."""
    if text == "off":
        return text
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        if re.fullmatch(r"[0-9.]+|.*:.*", text) or not re.fullmatch(r"[!-.0-~]{1,15}", text):
            raise ValueError("must be off, an IPv4 address or a network interface's name") from None
        return text
    if address.version != 4:
        raise ValueError(
            "must be an IPv4 address: Slurm uses version 6 only where it is all there is"
        )
    if address.is_unspecified or address.is_multicast:
        raise ValueError("must be one address of this machine: Slurm tells it to the others")
    return text


_FEWEST_PORTS = 64


def port_range(text: str) -> tuple[int, int]:
    """The first and the last port, and enough of them: each srun takes several."""
    found = tuple(count(item.strip()) for item in text.split("-"))
    if len(found) != 2 or found[0] < 1024 or not found[0] + _FEWEST_PORTS <= found[1] + 1 <= 65536:
        raise ValueError(f"must be {_FEWEST_PORTS} ports at least from 1024 to 65535: 61001-61999")
    return found[0], found[1]


def rest(text: str) -> str:
    wanted = "off, on, or an IP address with a port: 127.0.0.1:6820"
    return text if text in ("off", "on") else _address(text, wanted)


def _address(text: str, wanted: str) -> str:
    """ADDRESS:PORT, or [ADDRESS]:PORT with one of version 6, and a port that an ordinary user may have."""
    address, _, port = text.rpartition(":")
    bare = address[1:-1] if address[:1] == "[" and address[-1:] == "]" else address
    try:
        version = ipaddress.ip_address(bare).version
    except ValueError:
        version = None
    if (
        version is None
        or (version == 6) == (bare == address)
        or "%" in address
        or not re.fullmatch(r"[1-9][0-9]{3,4}", port)
        or not 1024 <= int(port) < 65536
    ):
        raise ValueError(f"must be {wanted}, the port from 1024 on")
    return text


def listener(text: str) -> str:
    return (
        text
        if text == "off"
        else _address(text, "off, or an IP address with a port: 127.0.0.1:9410")
    )


def own_listener(text: str) -> str:
    wanted = "off, or a loopback address with a port: 127.0.0.1:8410"
    if text == "off":
        return text
    address = _address(text, wanted).rpartition(":")[0].strip("[]")
    if not ipaddress.ip_address(address).is_loopback:
        raise ValueError(f"must be {wanted}: others could reach it at {address}")
    return text
