"""Which kind of system a remedy is for. Pure."""

from __future__ import annotations

from typing import Literal

from dshpc_setup.errors import Fix
from dshpc_setup.facts import HostFacts, Platform, Toolkit

Fixes = tuple[Fix, ...]
Family = Literal["deb", "rpm", "suse", "arch", "nixos", "alpine"]

_FAMILIES: dict[str, Family] = {
    "debian": "deb",
    "ubuntu": "deb",
    "fedora": "rpm",
    "rhel": "rpm",
    "centos": "rpm",
    "rocky": "rpm",
    "almalinux": "rpm",
    "ol": "rpm",
    "amzn": "rpm",
    "suse": "suse",
    "opensuse": "suse",
    "opensuse-leap": "suse",
    "opensuse-tumbleweed": "suse",
    "sles": "suse",
    "arch": "arch",
    "nixos": "nixos",
    "alpine": "alpine",
}


def family(platform: Platform) -> Family | None:
    """Whose packages this system takes, by its own name first; None for one not known here."""
    for name in (platform.os_id, *platform.os_like):
        if name in _FAMILIES:
            return _FAMILIES[name]
    return None


def toolkit(facts: HostFacts, vendor: str) -> Toolkit | None:
    """The vendor's container toolkit; None where none is installed or nothing is known of it."""
    installed = (item for item in facts.engine.toolkits if item.state == "present")
    return next((item for item in installed if item.vendor == vendor), None)
