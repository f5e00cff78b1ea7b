"""Intel GPUs: PCI and DRM (drivers i915 and xe)."""

from __future__ import annotations

import re

from dshpc_setup.facts import GpuDevice, Gpus
from dshpc_setup.machine import Machine
from dshpc_setup.probes import naming, pci
from dshpc_setup.probes.look import Found, Look
from dshpc_setup.probes.platform import in_container

_BOARDS = {
    0x0BD5: "Intel Data Center GPU Max 1550",
    0x0BDA: "Intel Data Center GPU Max 1100",
    0x56A0: "Intel Arc A770",
    0x56A1: "Intel Arc A750",
    0x56A5: "Intel Arc A380",
    0x56C0: "Intel Data Center GPU Flex 170",
    0x56C1: "Intel Data Center GPU Flex 140",
    0xE20B: "Intel Arc B580",
    0xE20C: "Intel Arc B570",
}


def probe(machine: Machine, deadline_s: float) -> Found[Gpus]:
    """Intel's graphics cards.

    The display adapter inside a processor is reported and not listed: a job that asks for a GPU
    must not be given what draws the desktop.
    """
    del deadline_s  # a few small files
    look = Look(machine)
    cards = [card for card in pci.graphics(look) if card.vendor == pci.INTEL]
    discrete = [card for card in cards if not is_integrated(card)]
    devices: list[GpuDevice] = []
    problems = []
    for card in discrete:
        device = _device(look, card, len(devices))
        contained = in_container(machine)
        if not contained and card.driver not in ("i915", "xe"):
            if card.driver != "vfio-pci":
                problems.append(f"the Intel card at {card.address} has no driver (i915 or xe)")
        elif device.device_files and (not contained or machine.is_device(device.device_files[0])):
            devices.append(device)
        elif not contained:
            problems.append(f"the Intel card at {card.address} has no render node")
    detail = "; ".join(problems) or None
    if devices:
        look.saw("intel", "present", pci.ROOT, detail)
        return look.found(Gpus("present", tuple(devices), detail=detail))
    if problems:
        look.saw("intel", "error", pci.ROOT, detail)
        return look.found(Gpus("error", detail=detail))
    detail = None
    if len(cards) > len(discrete):
        detail = "the display adapter inside the Intel processor is not used for jobs"
    look.saw("intel", "absent", pci.ROOT, detail or "no Intel card")
    return look.found(Gpus("absent", detail=detail))


def is_integrated(card: pci.PciDevice) -> bool:
    """Intel's own adapters sit on the root bus, at device 2; cards sit behind a bridge."""
    return re.fullmatch(r"[0-9a-f]{4,8}:00:02\.[0-7]", card.address) is not None


def _device(look: Look, card: pci.PciDevice, index: int) -> GpuDevice:
    names = look.machine.listdir(f"{pci.ROOT}/{card.address}/drm")
    render = next((name for name in names if re.fullmatch(r"renderD[0-9]{1,4}", name)), None)
    name = _BOARDS.get(card.device or 0)
    # Only i915 says how much memory of its own the card has.
    primary = next((item for item in names if re.fullmatch(r"card[0-9]{1,4}", item)), "card0")
    size = look.number(f"{pci.ROOT}/{card.address}/drm/{primary}/lmem_total_bytes")
    return GpuDevice(
        index=index,
        vendor="intel",
        name=name,
        pci_bus_id=card.address,
        memory_mib=size >> 20 if size is not None and size > 0 else None,
        slurm_type=naming.slurm_type(name, "intel"),
        device_files=(f"/dev/dri/{render}",) if render else (),
        numa_node=card.numa_node,
        cores=card.cores,
    )
