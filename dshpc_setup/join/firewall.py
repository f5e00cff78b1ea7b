"""Which firewall a machine has, and the command that lets another machine in. Nothing is changed here."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Literal

from dshpc_setup.errors import Fix

if TYPE_CHECKING:
    from dshpc_setup.machine import Machine

Kind = Literal["firewalld", "ufw", "nftables"]
_KINDS: tuple[Kind, ...] = ("firewalld", "ufw", "nftables")


def kind(machine: Machine) -> Kind:
    """The one that is in charge, as far as its files say; nftables where none of the two others is."""
    if machine.exists("/run/firewalld"):
        return "firewalld"
    text = machine.read("/etc/ufw/ufw.conf").text or ""
    return "ufw" if re.search(r"(?im)^\s*ENABLED\s*=\s*\"?yes", text) else "nftables"


def known(text: str) -> Kind | None:
    return next((each for each in _KINDS if each == text), None)


def let_in(which: Kind | None, source: str, first: int, last: int, where: str) -> tuple[Fix, ...]:
    """The step for that firewall, or one for each where it is not known; `where`: on which machine."""
    kinds = (which,) if which is not None else _KINDS
    return tuple(
        Fix(
            f"Open it {where}, with {each}",
            _command(each, source, first, last),
            step="do" if each == kinds[0] else "alternative",
        )
        for each in kinds
    )


def _command(which: Kind, source: str, first: int, last: int) -> str:
    ports = str(first) if first == last else f"{first}-{last}"
    if which == "firewalld":
        rule = f'rule family="ipv4" source address="{source}" port port="{ports}" protocol="tcp" accept'
        return (
            f"sudo firewall-cmd --permanent --add-rich-rule='{rule}' && sudo firewall-cmd --reload"
        )
    if which == "ufw":
        return f"sudo ufw allow from {source} to any port {ports.replace('-', ':')} proto tcp"
    return f"sudo nft insert rule inet filter input ip saddr {source} tcp dport {ports} accept"
