"""Intel GPUs: PCI and DRM (drivers i915 and xe)."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace

from dshpc_setup import gpu_vendors
from dshpc_setup.facts import Because, Disagreement, GpuDevice, Gpus, UnusedCode, UnusedGpu
from dshpc_setup.machine import Machine
from dshpc_setup.probes import drm, naming, nodes, pci, unseen
from dshpc_setup.probes.gpus import in_words
from dshpc_setup.probes.platform import in_container
from dshpc_setup.probes.trace import Found, Trace, counted

_OURS = gpu_vendors.of("intel")
_DRIVERS, _PCI_ID = _OURS.modules, _OURS.pci
_HELD = ("vfio-pci", "pci-stub", "xen-pciback")  # drivers that keep a card for virtual machines
_INSIDE = "the display adapter inside the Intel processor is not used for jobs"

_BOARDS = {
    0x0BD5: "Intel Data Center GPU Max 1550",
    0x0BD9: "Intel Data Center GPU Max 1100",
    0x0BDA: "Intel Data Center GPU Max 1100",
    0x0BDB: "Intel Data Center GPU Max 1100",
    0x4905: "Intel Iris Xe MAX",
    0x4907: "Intel Server GPU SG1",
    0x5690: "Intel Arc A770M",
    0x5691: "Intel Arc A730M",
    0x5692: "Intel Arc A550M",
    0x5693: "Intel Arc A370M",
    0x5694: "Intel Arc A350M",
    0x56A0: "Intel Arc A770",
    0x56A1: "Intel Arc A750",
    0x56A2: "Intel Arc A580",
    0x56A5: "Intel Arc A380",
    0x56A6: "Intel Arc A310",
    0x56B0: "Intel Arc Pro A30M",
    0x56B1: "Intel Arc Pro A40/A50",
    0x56B2: "Intel Arc Pro A60M",
    0x56B3: "Intel Arc Pro A60",
    0x56C0: "Intel Data Center GPU Flex 170",
    0x56C1: "Intel Data Center GPU Flex 140",
    0xE20B: "Intel Arc B580",
    0xE20C: "Intel Arc B570",
    0xE211: "Intel Arc Pro B60",
    0xE212: "Intel Arc Pro B50",
}
# Ponte Vecchio, DG1, DG2 and Battlemage: cards, wherever a virtual machine shows them.
_DISCRETE = ((0x0BD0, 0x0BE5), (0x4905, 0x4909), (0x4F80, 0x4F88), (0x5690, 0x56C2),
             (0xE202, 0xE223))  # fmt: skip


@dataclass
class _Sorted:
    """The cards, each in one of these."""

    devices: list[GpuDevice] = field(default_factory=list)
    unused: list[UnusedGpu] = field(default_factory=list)
    wrong: list[tuple[pci.PciDevice, UnusedCode, str]] = field(default_factory=list)
    hidden: int = 0  # in sysfs, and not handed to this container


def probe(machine: Machine, deadline_s: float) -> Found[Gpus]:
    """Intel's graphics cards.

    The display adapter inside a processor is reported and not listed: a job that asks for a GPU
    must not be given what draws the desktop.
    """
    del deadline_s  # a few small files
    look = Trace(machine)
    cards = fetch(look)
    found = _sorted(look, cards, container=in_container(machine))
    gone = nodes.missing(machine, found.devices, "DRM")
    found.devices = [nodes.marked(machine, device) for device in found.devices]
    fact = _fact(found)
    fact = replace(fact, disagreements=(*fact.disagreements, *gone))
    fact = unseen.sure(look, fact, container=in_container(machine))
    nothing = "no Intel card" if not cards else None
    look.saw("intel", fact.state, pci.ROOT, fact.detail or nothing)
    _denied(look, found.devices)
    _conclude(look, fact, cards)
    return look.found(fact)


def fetch(look: Trace) -> tuple[pci.PciDevice, ...]:
    """Graphics cards on the bus, or as DRM shows them; an NPU is no graphics card."""
    cards = [card for card in pci.graphics(look) if card.vendor == _PCI_ID]
    if not cards:
        cards = [
            card
            for card in drm.of_vendor(look, drm.fetch(look), _PCI_ID)
            if card.driver in (None, *_DRIVERS, *_HELD)
        ]
    return tuple(card for card in cards if card.kind >> 8 in (0x00, 0x03))


def _sorted(look: Trace, cards: tuple[pci.PciDevice, ...], *, container: bool) -> _Sorted:
    found = _Sorted()
    for card in cards:
        name = _BOARDS.get(card.device or 0)
        address = pci.parse_address(card.address)
        if is_integrated(card):
            found.unused.append(UnusedGpu("intel", _INSIDE, address, name, card.driver, "display"))
            continue
        device = _device(look, card, len(found.devices))
        if container:
            if device.device_files and look.machine.is_device(device.device_files[0]):
                found.devices.append(device)
            else:
                found.hidden += 1
        elif card.driver in _HELD:
            reason = f"it is handed to virtual machines ({card.driver})"
            found.unused.append(
                UnusedGpu("intel", reason, address, name, card.driver, "virtual-machines")
            )
        elif card.driver not in _DRIVERS:
            found.wrong.append((card, "no-driver", "has no driver (i915 or xe)"))
        elif not device.device_files:
            found.wrong.append((card, "no-render-node", "has no render node"))
        else:
            found.devices.append(device)
    return found


def _fact(found: _Sorted) -> Gpus:
    problems = [f"the Intel card at {card.address} {words}" for card, _, words in found.wrong]
    unused = [
        *found.unused,
        *(
            UnusedGpu(
                "intel",
                f"it {words}",
                pci.parse_address(card.address),
                _BOARDS.get(card.device or 0),
                card.driver,
                code,
            )
            for card, code, words in found.wrong
        ),
    ]
    disagreements = tuple(
        Disagreement(
            card.address,
            (
                Because(
                    "PCI", f"there is an Intel card, and {card.driver or 'no driver'} holds it"
                ),
                Because("DRM", "no render node belongs to it"),
            ),
            f"jobs cannot use it: it {words}",
        )
        for card, _, words in found.wrong
    )
    if found.hidden:
        were = "was" if found.hidden == 1 else "were"
        hidden = counted(found.hidden, "Intel GPU")
        problems.append(f"{hidden} of the machine {were} not handed to this container")
    detail = "; ".join(problems) or None
    devices = tuple(found.devices)
    driver = next((item.driver_version for item in devices if item.driver_version), None)
    if devices:
        return Gpus(
            "present",
            devices,
            driver_version=driver,
            detail=detail,
            unused=tuple(unused),
            disagreements=disagreements,
        )
    if found.wrong:
        return Gpus("error", detail=detail, unused=tuple(unused), disagreements=disagreements)
    if detail is None and found.unused:
        held = [item for item in found.unused if item.code != "display"]
        detail = f"the Intel card at {held[0].pci_bus_id}: {held[0].reason}" if held else _INSIDE
    return Gpus("absent", detail=detail, unused=tuple(unused))


def is_integrated(card: pci.PciDevice) -> bool:
    """Intel's own adapters sit on the root bus, at device 2; cards sit behind a bridge.

    A card that was handed to a virtual machine may sit there as well: its id tells.
    """
    if card.device is not None and any(low <= card.device <= high for low, high in _DISCRETE):
        return False
    return re.fullmatch(r"[0-9a-f]{4,8}:00:02\.[0-7]", card.address) is not None


def _device(look: Trace, card: pci.PciDevice, index: int) -> GpuDevice:
    found = drm.of_device(look, card.address)
    if found.render is None:
        found = drm.fetch(look).cards.get(card.address, found)
    node = f"/dev/dri/{found.render}" if found.render else None
    name = _BOARDS.get(card.device or 0)
    size = memory_bytes(look, found)
    group = look.machine.group_of(node) if node else None
    return GpuDevice(
        index=index,
        vendor="intel",
        name=name,
        pci_bus_id=pci.parse_address(card.address),
        memory_mib=(size or 0) >> 20 or None,
        driver_version=look.text(f"/sys/module/{card.driver}/version") or None,
        slurm_type=naming.slurm_type((name or "").split("/")[0], "intel"),
        device_files=(node,) if node else (),
        numa_node=card.numa_node,
        cores=card.cores,
        minor=found.minor,
        driver=card.driver,
        group_ids=(group,) if group is not None else (),
        unified_memory=False,
    )


def memory_bytes(look: Trace, card: drm.Card) -> int | None:
    """xe tells each tile's memory; Intel's own i915 the card's; the kernel's i915 nothing."""
    names = look.machine.listdir(card.folder)
    tiles = [name for name in names if re.fullmatch(r"tile[0-9]{1,3}", name)]
    sizes = [
        look.number(f"{card.folder}/{tile}/physical_vram_size_bytes")
        or look.number(f"{card.folder}/{tile}/memory/physical_vram_size_bytes")
        for tile in tiles
    ]
    if sizes and all(size is not None and size > 0 for size in sizes):
        return sum(size or 0 for size in sizes)
    size = look.number(f"{card.folder}/drm/{card.primary}/lmem_total_bytes")
    return size if size is not None and size > 0 else None


def _denied(look: Trace, devices: list[GpuDevice]) -> None:
    """Of the host's user only: the engine opens the node as root."""
    for device in devices:
        for node in device.device_files:
            if look.machine.access(node) == "denied":
                look.saw("intel-device", "denied", node, "this user is not in the node's group")


def _conclude(look: Trace, fact: Gpus, cards: tuple[pci.PciDevice, ...]) -> None:
    look.concluded(
        "gpus intel",
        in_words(fact),
        (pci.ROOT, counted(len(cards), "Intel graphics adapter")),
        instead=[(item.pci_bus_id or "a card", item.reason) for item in fact.unused],
    )
    for device in fact.devices:
        memory = f"{device.memory_mib} MiB" if device.memory_mib else "memory not reported"
        look.concluded(
            f"gpu {device.pci_bus_id or device.index}",
            f"{device.name or 'an Intel GPU'}, {memory}",
            ("PCI", f"its driver is {device.driver}"),
            ("DRM", ", ".join(device.device_files) or "no render node"),
        )
