"""Whether there is anything of AMD's here at all: a few files, so that most machines are done with."""

from __future__ import annotations

import re

from dshpc_setup import gpu_vendors
from dshpc_setup.machine import Machine
from dshpc_setup.probes import pci
from dshpc_setup.probes.trace import Trace

_PCI_ID = gpu_vendors.of("amd").pci

# The class, and what its links lead to.
KFD = ("/sys/class/kfd/kfd/topology/nodes", "/sys/devices/virtual/kfd/kfd/topology/nodes")
DRM = "/sys/class/drm"
TOOLS = ("amd-smi", "rocm-smi")  # the newer one first


def programs(machine: Machine) -> dict[str, str]:
    """AMD's tools by their names; ROCm's own folder is often not on the PATH."""
    folder = f"{machine.env.get('ROCM_PATH') or '/opt/rocm'}/bin"
    found = {}
    for tool in TOOLS:
        program = machine.which(tool) or machine.which(f"{folder}/{tool}")
        if program:
            found[tool] = program
    return found


def there(look: Trace) -> bool:
    """A card, the compute driver, or a tool: any of them is worth a closer look."""
    return (
        any(look.machine.exists(path) for path in KFD)
        or any(look.machine.read(path).state == "denied" for path in KFD)
        or any(card.vendor == _PCI_ID for card in pci.graphics(look))
        or any(look.number(f"{DRM}/{name}/device/vendor") == _PCI_ID for name in _cards(look))
        or bool(programs(look.machine))
    )


def _cards(look: Trace) -> list[str]:
    return [name for name in look.machine.listdir(DRM) if re.fullmatch(r"card[0-9]{1,6}", name)]
