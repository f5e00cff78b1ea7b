"""AMD GPUs: the kernel's own tree (KFD) first, since it needs no library and knows partitions."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from dshpc_setup.facts import GpuDevice, Gpus
from dshpc_setup.machine import Machine
from dshpc_setup.probes import naming, pci
from dshpc_setup.probes.look import Found, Look
from dshpc_setup.probes.platform import in_container

_NODES = "/sys/class/kfd/kfd/topology/nodes"
_KFD = "/dev/kfd"

# A display adapter inside the processor has a carve-out of a few hundred MiB; no card for computing
# has so little.
_INTEGRATED_MIB = 3072
_OLDEST_ROCM_DEVICE = 0x6600  # PCI ids below belong to cards that ROCm's driver never served

# PCI ids of boards whose name the kernel does not always tell.
_BOARDS = {
    0x66A0: "AMD Instinct MI60",
    0x66A1: "AMD Instinct MI50",
    0x738C: "AMD Instinct MI100",
    0x7408: "AMD Instinct MI250X",
    0x740C: "AMD Instinct MI250X",
    0x740F: "AMD Instinct MI210",
    0x74A0: "AMD Instinct MI300A",
    0x74A1: "AMD Instinct MI300X",
    0x74A5: "AMD Instinct MI325X",
    0x74A9: "AMD Instinct MI300X",
    0x75A0: "AMD Instinct MI350X",
    0x75A3: "AMD Instinct MI355X",
}


@dataclass(frozen=True)
class KfdNode:
    """A GPU node of the topology: a card, or a partition of one."""

    number: int
    properties: Mapping[str, int] = field(default_factory=dict)
    memory_bytes: int = 0

    @property
    def address(self) -> str:
        # Partitions carry their number in bits 28-31 of the location.
        return pci.address_of(self.properties.get("domain", 0), self.properties["location_id"])

    @property
    def render_node(self) -> str | None:
        minor = self.properties.get("drm_render_minor", 0)
        return f"/dev/dri/renderD{minor}" if minor > 0 else None


def probe(machine: Machine, deadline_s: float) -> Found[Gpus]:
    """AMD's GPUs, and why there is none; only `absent` means that there are zero."""
    look = Look(machine)
    nodes = fetch_nodes(look)
    if not nodes:
        fact = _without_kfd(look)
        return look.found(fact)
    look.saw("kfd", "present", _NODES, f"{len(nodes)} GPU node(s)")
    cards = {card.address: card for card in pci.graphics(look) if card.vendor == pci.AMD}
    devices = _named(look, build(nodes, cards), cards, deadline_s)
    kept, left_out = _usable(machine, devices)
    access = machine.access(_KFD)
    detail = "; ".join(left_out) or None
    if access == "denied":
        # Of the host's user only: the engine opens it as root.
        look.saw("kfd-device", "denied", _KFD, "this user is not in the group of /dev/kfd")
    driver = look.text("/sys/module/amdgpu/version")
    if kept:
        kept = tuple(replace(device, driver_version=driver) for device in kept)
        return look.found(Gpus("present", kept, driver_version=driver, detail=detail))
    return look.found(Gpus("absent", driver_version=driver, detail=detail))


def fetch_nodes(look: Look) -> tuple[KfdNode, ...]:
    """The tree's GPU nodes in number order (10 comes after 9)."""
    names = [name for name in look.machine.listdir(_NODES) if re.fullmatch(r"[0-9]{1,6}", name)]
    found = []
    for name in sorted(names, key=int):
        properties = parse_properties(look.text(f"{_NODES}/{name}/properties") or "")
        if properties.get("simd_count", 0) <= 0 or "location_id" not in properties:
            continue
        banks = f"{_NODES}/{name}/mem_banks"
        sizes = [
            parse_bank(look.text(f"{banks}/{bank}/properties") or "")
            for bank in look.machine.listdir(banks)
        ]
        found.append(KfdNode(int(name), properties, sum(sizes)))
    return tuple(found)


def parse_properties(text: str) -> dict[str, int]:
    """Lines "key number"; numbers up to 64 bit unsigned."""
    found: dict[str, int] = {}
    for line in text.splitlines():
        words = line.split()
        if len(words) == 2 and re.fullmatch(r"[0-9]{1,20}", words[1]):
            found[words[0]] = int(words[1])
    return found


def parse_bank(text: str) -> int:
    """Bytes of a memory bank, if it is the card's own (heap 1 public, 2 private); else 0."""
    bank = parse_properties(text)
    return bank.get("size_in_bytes", 0) if bank.get("heap_type") in (1, 2) else 0


def build(nodes: tuple[KfdNode, ...], cards: Mapping[str, pci.PciDevice]) -> tuple[GpuDevice, ...]:
    """One device a node; several nodes of one address are partitions of that card."""
    shares = Counter(node.address for node in nodes)
    ids = Counter(node.properties.get("unique_id", 0) for node in nodes)
    found = []
    for index, node in enumerate(nodes):
        unique = node.properties.get("unique_id", 0)
        target = gfx_target(node.properties.get("gfx_target_version", 0))
        name = _BOARDS.get(node.properties.get("device_id", 0))
        card = cards.get(node.address)
        found.append(
            GpuDevice(
                index=index,
                vendor="amd",
                name=name,
                # Partitions of a card share its id: then it names none of them.
                uuid=f"GPU-{unique:016x}" if unique and ids[unique] == 1 else None,
                pci_bus_id=node.address,
                memory_mib=node.memory_bytes >> 20 or None,
                compute=target,
                slurm_type=naming.slurm_type(name, target or "gpu"),
                device_files=(node.render_node,) if node.render_node else (),
                numa_node=card.numa_node if card else None,
                cores=card.cores if card else None,
                partition_of=node.address if shares[node.address] > 1 else None,
            )
        )
    return tuple(found)


def gfx_target(version: int) -> str | None:
    """90402 -> gfx942, 90010 -> gfx90a: major, minor, stepping by hundreds, the last two in hex."""
    if version <= 0:
        return None
    return f"gfx{version // 10000}{version // 100 % 100:x}{version % 100:x}"


def _named(
    look: Look,
    devices: tuple[GpuDevice, ...],
    cards: Mapping[str, pci.PciDevice],
    deadline_s: float,
) -> tuple[GpuDevice, ...]:
    """With the boards' own names, from sysfs, and from pyrsmi where even that has none."""
    names = {
        address: name
        for address in cards
        if (name := look.text(f"{pci.ROOT}/{address}/product_name"))
    }
    if any(device.name is None and device.pci_bus_id not in names for device in devices):
        names = {**_names_by_library(look, deadline_s), **names}
    return tuple(
        replace(device, name=name, slurm_type=naming.slurm_type(name, device.slurm_type))
        if device.name is None and (name := names.get(device.pci_bus_id or ""))
        else device
        for device in devices
    )


def _names_by_library(look: Look, deadline_s: float) -> dict[str, str]:
    reply = look.machine.amdsmi(deadline_s)
    look.saw("amdsmi", reply.state, reply.source, reply.detail)
    items = reply.value.get("devices") if isinstance(reply.value, dict) else None
    found = {}
    for item in items if isinstance(items, list) else ():
        if isinstance(item, dict) and isinstance(item.get("name"), str):
            address = pci.parse_address(item.get("pci_bus_id"))
            if address and item["name"].strip():
                found[address] = item["name"].strip()
    return found


def _usable(
    machine: Machine, devices: tuple[GpuDevice, ...]
) -> tuple[tuple[GpuDevice, ...], list[str]]:
    """Those that jobs can have, numbered anew, and a sentence for the others."""
    contained, hidden = in_container(machine), 0
    kept: list[GpuDevice] = []
    left_out: list[str] = []
    for device in devices:
        handed = machine.is_device(_KFD) and all(
            machine.is_device(path) for path in device.device_files
        )
        if contained and not handed:
            hidden += 1  # sysfs shows every GPU of the machine, in each of its containers
        elif device.memory_mib is not None and device.memory_mib < _INTEGRATED_MIB:
            left_out.append(
                f"the display adapter at {device.pci_bus_id} with {device.memory_mib} MiB is "
                "not used for jobs"
            )
        else:
            kept.append(replace(device, index=len(kept)))
    if hidden:
        left_out.append(f"{hidden} AMD GPU(s) of the machine were not handed to this container")
    return tuple(kept), left_out


def _without_kfd(look: Look) -> Gpus:
    cards = [card for card in pci.graphics(look) if card.vendor == pci.AMD]
    if not cards or in_container(look.machine):
        look.saw("kfd", "absent", _NODES, "no AMD GPU node")
        return Gpus("absent")
    if all(card.driver == "vfio-pci" for card in cards):
        detail = "every AMD card is handed to virtual machines (vfio-pci)"
        look.saw("kfd", "absent", _NODES, detail)
        return Gpus("absent", detail=detail)
    able = [card for card in cards if (card.device or 0) >= _OLDEST_ROCM_DEVICE]
    able = [card for card in able if card.driver != "radeon" and card.driver != "vfio-pci"]
    if not able:
        detail = f"the AMD card at {cards[0].address} is too old for ROCm"
        look.saw("kfd", "absent", _NODES, detail)
        return Gpus("absent", detail=detail)
    card = able[0]
    driver = "its driver amdgpu is not loaded" if card.driver is None else "the kernel has no KFD"
    detail = f"there is an AMD card at {card.address}, but {driver}"
    look.saw("kfd", "error", _NODES, detail)
    return Gpus("error", detail=detail)
