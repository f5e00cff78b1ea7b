"""Acme's cards, as PCI and the driver's own files have them."""

from __future__ import annotations

from dshpc_setup import gpu_vendors
from dshpc_setup.facts import GpuDevice, Gpus
from dshpc_setup.machine import Machine
from dshpc_setup.probes import naming, pci
from dshpc_setup.probes.trace import Found, Trace


def probe(machine: Machine, deadline_s: float) -> Found[Gpus]:
    look = Trace(machine, deadline_s)
    ours = gpu_vendors.of("acme")
    cards = [card for card in pci.graphics(look) if card.vendor == ours.pci]
    if not cards:
        look.saw("acme", "absent", pci.ROOT)
        return look.found(Gpus("absent"))
    idle = [card.address for card in cards if card.driver not in ours.modules]
    if idle:
        detail = f"the Acme card at {idle[0]} has no driver"
        look.saw("acme", "error", pci.ROOT, detail)
        return look.found(Gpus("error", detail=detail))
    look.saw("acme", "present", pci.ROOT)
    devices = tuple(_device(look, at, card) for at, card in enumerate(cards))
    for device in devices:
        look.concluded(
            f"gpu {device.pci_bus_id}",
            device.name or "a GPU of Acme",
            ("PCI", f"its driver is {device.driver}"),
        )
    return look.found(Gpus("present", devices))


def _device(look: Trace, index: int, card: pci.PciDevice) -> GpuDevice:
    folder = f"{pci.ROOT}/{card.address}/acme"
    node = f"/dev/acme{look.number(f'{folder}/minor')}"
    group = look.machine.group_of(node)
    name = look.text(f"{folder}/name")
    return GpuDevice(
        index,
        "acme",
        name=name,
        uuid=look.text(f"{folder}/uuid"),
        pci_bus_id=card.address,
        memory_mib=(look.number(f"{folder}/memory") or 0) >> 20,
        compute="7",
        slurm_type=naming.slurm_type((name or "").removeprefix("Acme "), "acme"),
        device_files=(node,),
        driver=card.driver,
        group_ids=(group,) if group else (),
    )
