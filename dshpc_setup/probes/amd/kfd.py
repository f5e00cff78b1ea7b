"""AMD's compute driver (KFD) as sysfs shows it: one node a CPU, one a GPU or partition of one."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from dshpc_setup.probes import pci
from dshpc_setup.probes.amd import signs as amd_signs
from dshpc_setup.probes.trace import Trace, kept

NODES, _NODES_TOO = amd_signs.KFD
_LINKS = ("io_links", "p2p_links")

_XGMI = 11  # the kernel's CRAT_IOLINK_TYPE_XGMI; 2 is PCI Express
# The kernel's weights of a direct way: 15 for a hop of xGMI, 13 for each way inside a package
# (between a card's partitions, and from one of them to the link).
_DIRECT = (13, 15, 28, 41)
_MOST_LINKS = 16  # between two things; no GPU has more


@dataclass(frozen=True)
class NodeLink:
    """A direct xGMI connection to another node, of `count` links."""

    to: int
    count: int


@dataclass(frozen=True)
class Node:
    """A GPU node of the topology: a card, or a partition of one."""

    number: int
    properties: Mapping[str, int] = field(default_factory=dict)
    memory_bytes: int = 0
    links: tuple[NodeLink, ...] = ()

    @property
    def address(self) -> str | None:
        location, domain = self.properties.get("location_id"), self.properties.get("domain", 0)
        return None if location is None else pci.address_of(domain & 0xFFFFFFF, location)

    @property
    def upper(self) -> int:
        """Bits 28-31 of the location, where AMD's libraries keep a partition's number."""
        return self.properties.get("location_id", 0) >> 28 & 0xF

    @property
    def part(self) -> int:
        """Its number, if it is a partition: the upper bits, or what else is a PCI function."""
        return self.upper or self.properties.get("location_id", 0) & 0x7

    @property
    def minor(self) -> int | None:
        """Of its render node."""
        minor = self.properties.get("drm_render_minor", 0)
        return minor if 0 < minor < 1 << 20 else None

    @property
    def unique_id(self) -> int:
        return self.properties.get("unique_id", 0)

    @property
    def device_id(self) -> int:
        return self.properties.get("device_id", 0)

    @property
    def target(self) -> str | None:
        return gfx_target(self.properties.get("gfx_target_version", 0))


@dataclass(frozen=True)
class Topology:
    nodes: tuple[Node, ...] = ()  # of GPUs, in number order
    cpus: frozenset[int] = frozenset()
    denied: int = 0  # nodes whose properties this process may not read: GPUs of others
    unreadable: str | None = None  # the text of one that could not be understood

    @property
    def there(self) -> bool:
        return bool(self.nodes or self.cpus or self.denied or self.unreadable)


def fetch(look: Trace) -> Topology:
    """The tree's nodes, GPUs in number order (10 comes after 9)."""
    there = [path for path in (NODES, _NODES_TOO) if look.machine.exists(path)]
    root = there[0] if there else NODES
    names = [name for name in look.names(root) if re.fullmatch(r"[0-9]{1,6}", name)]
    found: list[Node] = []
    cpus: set[int] = set()
    denied, unreadable = 0, None
    linked: set[str] = set()
    for name in sorted(names, key=int):
        read = look.machine.read(f"{root}/{name}/properties")
        # The kernel refuses the nodes of GPUs that the device cgroup keeps from us, and no others.
        denied += read.state == "denied"
        properties = parse_properties(read.text or "")
        if "simd_count" not in properties:
            if read.state in ("present", "error"):
                unreadable = unreadable or kept(read.text or read.detail or "") or "nothing"
            continue
        if properties["simd_count"] == 0:
            cpus.add(int(name))
            continue
        node = Node(int(name), properties, _memory(look, f"{root}/{name}"))
        card = (node.address or name).partition(".")[0]
        if card not in linked:  # once a card: 64 partitions have thousands of links
            node = replace(node, links=_links(look, f"{root}/{name}", int(name)))
            linked.add(card)
        found.append(node)
    return Topology(tuple(found), frozenset(cpus), denied, unreadable)


def _memory(look: Trace, folder: str) -> int:
    banks = f"{folder}/mem_banks"
    return sum(
        parse_bank(look.text(f"{banks}/{bank}/properties") or "")
        for bank in look.machine.listdir(banks)
    )


def _links(look: Trace, folder: str, number: int) -> tuple[NodeLink, ...]:
    found: dict[int, int] = {}
    for kind in _LINKS:
        for name in look.machine.listdir(f"{folder}/{kind}"):
            link = parse_link(look.text(f"{folder}/{kind}/{name}/properties") or "")
            if link is not None and link.to != number:
                found[link.to] = max(link.count, found.get(link.to, 0))
    return tuple(NodeLink(to, count) for to, count in sorted(found.items()))


def parse_properties(text: str) -> dict[str, int]:
    """Lines "key number"; numbers up to 64 bit unsigned."""
    found: dict[str, int] = {}
    for line in text.splitlines():
        words = line.split()
        if len(words) == 2 and re.fullmatch(r"[0-9]{1,20}", words[1]):
            number = int(words[1])
            if number < 1 << 64:
                found[words[0]] = number
    return found


def parse_bank(text: str) -> int:
    """Bytes of a memory bank, if it is the card's own (heap 1 public, 2 private); else 0."""
    bank = parse_properties(text)
    return bank.get("size_in_bytes", 0) if bank.get("heap_type") in (1, 2) else 0


def parse_link(text: str) -> NodeLink | None:
    """A direct xGMI link; None for PCI Express, for a way over other GPUs, and for anything else.

    The least bandwidth is that of one link, the most that of all, where the kernel tells them.
    """
    link = parse_properties(text)
    if link.get("type") != _XGMI or "node_to" not in link:
        return None
    if link.get("weight", _DIRECT[0]) not in _DIRECT or not link.get("flags", 1) & 1:
        return None
    least, most = link.get("min_bandwidth", 0), link.get("max_bandwidth", 0)
    count = most // least if least and most else 1
    return NodeLink(link["node_to"], count if 1 <= count <= _MOST_LINKS else 1)


def gfx_target(version: int) -> str | None:
    """90402 -> gfx942, 90010 -> gfx90a: major, minor, stepping by hundreds, the last two in hex."""
    if not 10000 <= version < 1000000:
        return None
    return f"gfx{version // 10000}{version // 100 % 100:x}{version % 100:x}"
