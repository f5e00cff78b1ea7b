"""The conclusions about NVIDIA's GPUs in words: what each layer said, and what was not asked."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from dshpc_setup import problems
from dshpc_setup.facts import GpuDevice, Gpus
from dshpc_setup.facts.nvidia_driver import OLDEST_DRIVER, WSL_DEVICE, too_old
from dshpc_setup.machine import Reply, library
from dshpc_setup.machine.nvml import LIBRARY
from dshpc_setup.probes import pci
from dshpc_setup.probes.gpus import in_words
from dshpc_setup.probes.nvidia.layers import PROC, TOOL, Layers
from dshpc_setup.probes.nvidia.reconcile import BOARD, GpuList
from dshpc_setup.probes.nvidia.values import count, text
from dshpc_setup.probes.trace import Trace, counted

Pairs = list[tuple[str, str]]

# NVML's codes for a question that this GPU or this driver has no answer to.
_CODES = {
    3: "not supported here",
    4: "not for this user to see",
    13: "not known to this driver",
    15: "not known since the GPU was lost",
}
_FIELDS = {
    "compute": "compute capability",
    "compute_mode": "compute mode",
    "cpus": "CPUs near it",
    "ecc": "ECC",
    "ecc_errors": "ECC errors",
    "fabric": "NVSwitch fabric",
    "memory_bytes": "memory of its own",
    "mig_mode": "MIG",
    "mig_pending": "pending MIG",
    "minor": "minor number",
    "numa_node": "NUMA node",
    "nvlinks": "NVLink",
    "pci_bus_id": "PCI address",
    "persistence": "persistence mode",
    "recovery_action": "the step that it wants",
    "remapped": "remapped rows",
    "retired_pending": "retired pages",
    "virtualization": "virtualization mode",
}


def cards_in_words(layers: Layers) -> str | None:
    return (
        ", ".join(f"{card.address}: {card.driver or 'no driver'}" for card in layers.cards) or None
    )


def nothing(look: Trace, layers: Layers, detail: str) -> None:
    """No layer has any sign of NVIDIA, or none that is this container's."""
    because = [*_signs(layers), ("the loader's folders", f"no {LIBRARY}")]
    if not layers.kernel:  # else nobody looked
        because.append(("PATH", f"no {TOOL}"))
    look.concluded("gpus nvidia", f"no GPU: {detail}", *because)


def gpus(
    look: Trace, layers: Layers, found: Gpus, gpu_list: GpuList | None, nvml: Reply, *, asked: bool
) -> None:
    """The number of GPUs, or why there is none; `asked`: nvidia-smi was."""
    because = _signs(layers)
    because.append(("NVML", _nvml_in_words(nvml)))
    if gpu_list is not None and gpu_list.teller == "nvidia-smi":
        because.append(
            (gpu_list.teller, f"lists {counted(len(gpu_list.value.get('devices') or ()), 'GPU')}")
        )
    if layers.listed:
        because.append((f"{PROC}/gpus", f"lists {counted(len(layers.listed), 'card')}"))
    if too_old(found.driver_version):
        says = f"is older than {OLDEST_DRIVER}, the oldest that today's container tools work with"
        because.append((f"driver {found.driver_version}", says))
    instead = [
        *_not_asked(gpu_list, nvml, asked),
        *((item.pci_bus_id or "a card", item.reason) for item in found.unused),
    ]
    look.concluded("gpus nvidia", in_words(found), *because, instead=instead)


def _signs(layers: Layers) -> Pairs:
    drivers = Counter(card.driver or "no driver" for card in layers.cards)
    cards = ", ".join(f"{number} with {name}" for name, number in drivers.items())
    found: Pairs = []
    if layers.board is not None:
        found.append((layers.board.source, f"this is a Tegra board: {layers.board.words}"))
    if layers.wsl is not None:
        there = "is there" if layers.wsl.dxg else "is not there"
        found.append(
            (WSL_DEVICE, f"{there}; Windows lends {', '.join(layers.wsl.lent) or 'nothing'}")
        )
    else:
        found.append((pci.ROOT, f"NVIDIA cards: {cards}" if cards else "no NVIDIA card"))
        found.append(("/sys/module", layers.module.words))
    nodes = f"{counted(len(layers.nodes), 'GPU node')} of NVIDIA's"
    if layers.board is not None and layers.board.nodes:
        nodes += f", {len(layers.board.nodes)} of the board's"
    found.append(("/dev", nodes))
    return found


def _nvml_in_words(nvml: Reply) -> str:
    if nvml.state == "present":
        value: Mapping[str, Any] = nvml.value if isinstance(nvml.value, dict) else {}
        version = text(value.get("driver_version"))
        listed = f"lists {counted(len(library.devices(value)), 'GPU')}"
        return f"{listed}, driver {version}" if version else listed
    code = f" (code {nvml.code})" if nvml.code is not None else ""
    return f"{nvml.state}{code}: {nvml.detail or 'no reason was given'}"


def _not_asked(gpu_list: GpuList | None, nvml: Reply, asked: bool) -> Pairs:
    if gpu_list is not None and gpu_list.teller == "nvidia-smi":
        return [("NVML", "could not be used, so nvidia-smi was asked")]
    if gpu_list is not None and gpu_list.teller == BOARD:
        return [("NVML", "could not be used; CUDA needs none on this board")]
    if nvml.state == "present":
        return [("nvidia-smi", "NVML answered, and it knows nothing more")]
    if nvml.state == "timeout":
        return [("nvidia-smi", "it sits on the same library and would hang too")]
    if nvml.code not in (None, 12, 13):
        return [("nvidia-smi", "it sits on the same library, which refuses")]
    return [("nvidia-smi", "it gave no list either" if asked else "it is not on the PATH")]


def device(
    look: Trace, layers: Layers, found: GpuDevice, gpu_list: GpuList, item: Mapping[str, Any]
) -> None:
    """Which layer gave what of one device."""
    teller = gpu_list.teller if item else "the board's own files"
    because: Pairs = [(teller, _identity(found, item))]
    known = layers.listed.get(found.pci_bus_id or "")
    if found.minor is not None:
        of_teller = count(item.get("minor")) is not None
        source = teller if of_teller or known is None else known.source
        because.append((source, f"minor number {found.minor}"))
    card = layers.on_bus(found.pci_bus_id)
    if card is not None:
        folder = f"{pci.ROOT}/{card.address}"
        because.append((folder, f"held by {card.driver or 'no driver'}"))
        if card.numa_node is not None:
            because.append((folder, f"NUMA node {card.numa_node}"))
    if found.cores is not None:
        source = teller if text(item.get("cpus")) else f"{pci.ROOT}/{found.pci_bus_id}"
        because.append((source, f"near CPUs {found.cores}"))
    there = [path for path in found.device_files if look.machine.is_device(path)]
    if there:
        what = "is its device node" if len(there) == 1 else "are its device nodes"
        because.append(("/dev", f"{', '.join(there)} {what}"))
    missing = [path for path in found.device_files if path not in there]
    if missing:
        because.append(("/dev", f"{', '.join(missing)} not there"))
    if found.unified_memory:
        because.append((teller, "one memory for CPU and GPU"))
    because += _refused(item, teller)
    about = found.pci_bus_id or found.uuid or str(found.index)
    says = found.name or "a GPU that does not tell its name"
    if found.problems:
        sick = set(found.problems) <= problems.UNHEALTHY
        says += f", {'for jobs by a setting alone' if sick else 'not for jobs'}: "
        says += problems.in_words(found.problems)
    look.concluded(f"gpu {about}", says, *because)


def _identity(found: GpuDevice, item: Mapping[str, Any]) -> str:
    if "error" in item:
        return f"gives no handle (code {item['error']}): {text(item.get('text')) or 'no reason'}"
    memory = f"{found.memory_mib} MiB" if found.memory_mib else "no memory of its own reported"
    parts = (found.name, found.uuid, memory, f"compute capability {found.compute}")
    return ", ".join(part for part in parts[: 4 if found.compute else 3] if part)


def _refused(item: Mapping[str, Any], teller: str) -> Pairs:
    """Fields that the driver refused: they are null, for that is not known."""
    errors = item.get("errors")
    if not isinstance(errors, dict) or not errors:
        return []
    fields: dict[str, list[str]] = {}
    for key, code in list(errors.items())[:20]:
        fields.setdefault(_refusal(code), []).append(_FIELDS.get(str(key), str(key)))
    return [(teller, f"{why}: {', '.join(names)}") for why, names in fields.items()]


def _refusal(code: object) -> str:
    if not isinstance(code, int):
        return "not reported"
    return f"{_CODES.get(code, 'not reported')} (code {code})"


def in_step(
    devices: Sequence[GpuDevice], items: Sequence[Mapping[str, Any]]
) -> list[tuple[GpuDevice, Mapping[str, Any]]]:
    """Each device with the item it was made from; the board's own GPU has none."""
    padded = [*items, *({} for _ in range(max(0, len(devices) - len(items))))]
    return list(zip(devices, padded, strict=False))
