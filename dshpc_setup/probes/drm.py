"""The graphics drivers' own view (DRM): /sys/class/drm, and the same files in the PCI folders."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from dshpc_setup.probes import pci
from dshpc_setup.probes.trace import Trace

ROOT = "/sys/class/drm"


@dataclass(frozen=True)
class Card:
    """A graphics card: where its attributes are, and its nodes in /dev/dri."""

    key: str  # its PCI address; the name of its node where that is not known
    folder: str
    primary: str | None = None  # card0
    render: str | None = None  # renderD128

    @property
    def address(self) -> str | None:
        return pci.parse_address(self.key)

    @property
    def minor(self) -> int | None:
        return minor_of(self.render)


@dataclass(frozen=True)
class Drm:
    cards: Mapping[str, Card] = field(default_factory=dict)  # by `key`
    partitions: frozenset[int] = frozenset()  # render minors of AMD's partitions


def fetch(look: Trace) -> Drm:
    """Every card of the class, whoever made it, and the render nodes that are partitions' own."""
    cards: dict[str, Card] = {}
    partitions: set[int] = set()
    for name in look.machine.listdir(ROOT):
        if not re.fullmatch(r"(card|renderD)[0-9]{1,6}", name):
            continue  # connectors: card0-DP-1
        link = look.machine.readlink(f"{ROOT}/{name}") or ""
        device = look.machine.readlink(f"{ROOT}/{name}/device") or ""
        minor = minor_of(name)
        if re.search(r"amdgpu_xcp[._]?\d", f"{link} {device}"):
            if minor is not None:
                partitions.add(minor)
            continue
        key = address_in(device) or address_in(link) or _slot(look, name) or name
        card = cards.get(key) or Card(key, f"{ROOT}/{name}/device")
        primary = minor is None
        cards[key] = replace(card, primary=name) if primary else replace(card, render=name)
    return Drm(cards, frozenset(partitions))


def of_device(look: Trace, address: str) -> Card:
    """The card at a PCI address, with the nodes that its driver made."""
    folder = f"{pci.ROOT}/{address}"
    names = look.machine.listdir(f"{folder}/drm")
    return Card(address, folder, _first(names, "card"), _first(names, "renderD"))


def of_vendor(look: Trace, drm: Drm, vendor: int) -> tuple[pci.PciDevice, ...]:
    """The vendor's cards as DRM alone shows them, for a machine whose PCI bus cannot be seen."""
    return tuple(
        pci.read_device(look, card.key, card.folder, vendor)
        for card in drm.cards.values()
        if card.primary and look.number(f"{card.folder}/vendor") == vendor
    )


def address_in(path: str) -> str | None:
    """The last PCI address in a path: that of the device, the others are bridges' before it."""
    found = re.findall(r"(?:^|/)([0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7])(?=/|$)", path)
    return pci.parse_address(found[-1]) if found else None


def slot_in(uevent: str) -> str | None:
    """PCI_SLOT_NAME of a device's `uevent`."""
    match = re.search(r"^PCI_SLOT_NAME=(\S{1,40})\s*$", uevent, re.MULTILINE)
    return pci.parse_address(match[1]) if match else None


def minor_of(name: str | None) -> int | None:
    """renderD128 -> 128."""
    match = re.fullmatch(r"renderD([0-9]{1,6})", name or "")
    return int(match[1]) if match else None


def _slot(look: Trace, name: str) -> str | None:
    return slot_in(look.text(f"{ROOT}/{name}/device/uevent") or "")


def _first(names: tuple[str, ...], kind: str) -> str | None:
    return next((name for name in names if re.fullmatch(rf"{kind}[0-9]{{1,6}}", name)), None)
