"""What was concluded of AMD's GPUs, in sentences: for `detect --explain`."""

from __future__ import annotations

from collections.abc import Sequence

from dshpc_setup.facts import GpuDevice, Gpus
from dshpc_setup.probes import pci
from dshpc_setup.probes.amd import kfd
from dshpc_setup.probes.amd import partitions as amd_partitions
from dshpc_setup.probes.amd import tools as amd_tools
from dshpc_setup.probes.amd.search import Search
from dshpc_setup.probes.gpus import in_words
from dshpc_setup.probes.trace import counted


def conclude(search: Search, fact: Gpus) -> None:
    """Of the vendor, and of each card."""
    look, topology, layers = search.look, search.topology, search.layers
    unused = [(item.pci_bus_id or item.name or "a card", item.reason) for item in fact.unused]
    look.concluded(
        "gpus amd",
        in_words(fact),
        (
            "KFD",
            counted(len(topology.nodes), "GPU node") if topology.there else "there is no such tree",
        ),
        (pci.ROOT, counted(len(layers.cards), "AMD card")),
        *([(search.asked.tool, _of_tool(search.asked))] if search.asked else []),
        instead=[*unused, *search.not_asked],
    )
    nodes = amd_partitions.by_card(topology.nodes, layers)
    done: set[str] = set()
    for device in fact.devices:
        about = device.pci_bus_id or device.uuid or str(device.index)
        if about in done:
            continue
        done.add(about)
        parts = [item for item in fact.devices if item.pci_bus_id == device.pci_bus_id]
        group = nodes.get(about, [])
        because = [_of_kfd(group)] if group else [(search.tool or "the tool", "lists it")]
        told = layers.of(device.pci_bus_id)
        if told.vram_bytes or told.mode or told.product:
            words = (told.product, told.mode, told.memory_mode, _mib(told.vram_bytes))
            because.append(("DRM", ", ".join(word for word in words if word)))
        look.concluded(f"gpu {about}", _says(device, len(parts)), *because)


def _says(device: GpuDevice, parts: int) -> str:
    words = [device.name or "an AMD GPU", device.compute]
    words.append(f"{device.memory_mib} MiB" if device.memory_mib else None)
    text = ", ".join(word for word in words if word)
    if device.partition_of is None:
        return text
    mode = f" ({device.partition_mode})" if device.partition_mode else ""
    return f"{counted(parts, 'partition')}{mode} of {text} each"


def _of_tool(report: amd_tools.ToolReport) -> str:
    """What amd-smi or rocm-smi said, where it was asked."""
    if report.state == "present":
        return f"lists {counted(len(report.cards), 'card')}"
    return f"{report.state}: {amd_tools.last_words(report)}"


def _of_kfd(group: Sequence[kfd.Node]) -> tuple[str, str]:
    numbers = ", ".join(str(node.number) for node in group)
    minors = ", ".join(f"renderD{node.minor}" for node in group if node.minor)
    nodes = "node" if len(group) == 1 else "nodes"
    return "KFD", f"{nodes} {numbers}: {minors or 'no render node'}"


def _mib(size: int | None) -> str | None:
    return f"{size >> 20} MiB" if size else None
