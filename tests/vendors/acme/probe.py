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
        return look.found(Gpus("absent", detail="no card of Acme"))
    look.saw("acme", "present", pci.ROOT)
    return look.found(
        Gpus("present", tuple(_device(look, at, card) for at, card in enumerate(cards)))
    )


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
