"""NVML's answer and sysfs, put together into devices; nothing that NVML says may trip it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from dshpc_setup.facts import (
    ComputeMode,
    Fabric,
    FabricState,
    GpuDevice,
    Link,
    MigInstance,
    MigMode,
    Virtualization,
)
from dshpc_setup.machine import library
from dshpc_setup.probes import naming, pci
from dshpc_setup.probes.nvidia import health as nvidia_health
from dshpc_setup.probes.nvidia import instances as nvidia_instances
from dshpc_setup.probes.nvidia.layers import OURS, Layers
from dshpc_setup.probes.nvidia.values import count, switch, text
from dshpc_setup.probes.trace import Trace
from dshpc_setup.problems import LOST, NO_FABRIC, NO_INSTANCES, PROHIBITED, RESET, UNREADABLE

_PROBLEM_OF_CODE = {15: LOST, 16: RESET}
# nvmlDeviceGpuRecoveryAction_t: reset, restart of the node, reset of the bus, restart of the system. The
# others (drain, drain and reset, the IMEX domain) let programs go on.
_OF_NO_USE = (1, 2, 6, 7)
_DXG = "/dev/dxg"
# One memory for the CPU and the GPU, though the GPU is a card by all other signs.
_UNIFIED = r"\bGB10\b|\bThor\b|\bnvgpu\b|\bTegra\b"

# NVML's enumerations, in its order.
_COMPUTE_MODES: tuple[ComputeMode, ...] = (
    "default", "exclusive-thread", "prohibited", "exclusive-process",
)  # fmt: skip
_VIRTUALIZATIONS: tuple[Virtualization, ...] = (
    "none", "passthrough", "vgpu", "host-vgpu", "host-vsga",
)  # fmt: skip
_FABRIC_STATES: tuple[FabricState, ...] = (
    "not-supported", "not-started", "in-progress", "completed",
)  # fmt: skip


def build(look: Trace, layers: Layers, value: Mapping[str, Any]) -> tuple[GpuDevice, ...]:
    """The devices in NVML's order; the layers add what NVML does not know."""
    items = library.devices(value)
    named = {pci.parse_address(item.get("pci_bus_id")) for item in items}
    nameless = [
        card
        for card in layers.cards
        if card.address not in named
        and card.driver in OURS
        and not (card.address in layers.listed and layers.listed[card.address].excluded)
    ]
    version = text(value.get("driver_version"))
    # A GPU behind NVSwitches has others beside it; a single one, handed to a virtual machine
    # without its switches, computes without a fabric.
    fabric = layers.switches or len(items) > 1
    items = _with_nodes(layers, items)
    found = []
    for position, item in enumerate(items):
        index = count(item.get("index"))
        if index is None:
            index = position
        if "error" in item:
            # A lost card has no handle; where only one card is unaccounted for, it is that one.
            address = pci.parse_address(item.get("pci_bus_id"))
            if address is None and len(nameless) == 1:
                address = nameless[0].address
            found.append(_lost(layers, item["error"], index, address, version))
            continue
        found.append(_device(look, layers, item, index, version=version, fabric=fabric))
    board = layers.board
    if board is None or not board.nodes:
        return tuple(found)
    if not any(board.owns(gpu.name, bool(layers.on_bus(gpu.pci_bus_id))) for gpu in found):
        found.append(board.device(len(found), groups(look, board.nodes)))
    return tuple(found)


def _with_nodes(layers: Layers, items: list[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """With minor numbers in order where nobody tells one, and there are as many nodes as GPUs."""
    silent = all("error" not in item and count(item.get("minor")) is None for item in items)
    if layers.listed or layers.board or not silent or len(items) != len(layers.nodes):
        return items
    minors = sorted(int(node.removeprefix("/dev/nvidia")) for node in layers.nodes)
    return [{**item, "minor": minor} for item, minor in zip(items, minors, strict=True)]


def _lost(
    layers: Layers, code: object, index: int, address: str | None, version: str | None
) -> GpuDevice:
    card, known = layers.on_bus(address), layers.listed.get(address or "")
    name = known.model if known else None
    problem = _PROBLEM_OF_CODE.get(code, UNREADABLE) if isinstance(code, int) else LOST
    return GpuDevice(
        index,
        "nvidia",
        name=name,
        uuid=known.uuid if known else None,
        pci_bus_id=address,
        driver_version=version,
        slurm_type=naming.slurm_type(name),
        problems=(problem,),
        minor=known.minor if known else None,
        driver=card.driver if card else None,
    )


def _device(
    look: Trace,
    layers: Layers,
    item: Mapping[str, Any],
    index: int,
    *,
    version: str | None,
    fabric: bool,
) -> GpuDevice:
    name = text(item.get("name"))
    address = pci.parse_address(item.get("pci_bus_id"))
    if address == "0000:00:00.0":  # a Jetson's GPU is on no bus
        address = None
    card = layers.on_bus(address)
    board = layers.board
    if board is not None and not board.owns(name, card is not None):
        board = None
    wsl = layers.dxg and not layers.nodes
    minor = _minor(layers, item, address) if not wsl else None
    node = _DXG if wsl else f"/dev/nvidia{minor}" if minor is not None else None
    if board is not None and node not in layers.nodes:
        node, minor = None, None
    files = (*((node,) if node else ()), *(board.nodes if board is not None else ()))
    mode = _mig_mode(item.get("mig_mode"))
    instances = nvidia_instances.instances(look, item, node, minor) if mode == "enabled" else ()
    memory, numa = count(item.get("memory_bytes")), count(item.get("numa_node"))
    compute = _compute(item.get("compute"))
    if compute is None and board is not None:
        compute = board.compute
    return GpuDevice(
        index=index,
        vendor="nvidia",
        name=name,
        uuid=text(item.get("uuid")),
        pci_bus_id=address,
        memory_mib=(memory or 0) >> 20 or None,
        driver_version=version,
        compute=compute,
        slurm_type=naming.slurm_type(name, board.slurm_type if board else "gpu"),
        device_files=files,
        # NVML's is the node of the GPU's own memory where that is one (Grace Hopper); the kernel's
        # is the node that the card hangs on.
        numa_node=card.numa_node if card and card.numa_node is not None else numa,
        cores=text(item.get("cpus")) or (card.cores if card else None),
        mig_mode=mode,
        mig=instances,
        problems=_problems(item, mode, instances, fabric=fabric),
        minor=minor,
        driver=_driver(layers, card, board is not None and node is None),
        group_ids=groups(
            look, (*files, *(path for part in instances for path in part.device_files))
        ),
        unified_memory=_unified(name, memory, board is not None),
        links=_links(item.get("nvlinks")),
        persistence=switch(item.get("persistence")),
        compute_mode=_one_of(_COMPUTE_MODES, item.get("compute_mode")),
        ecc=switch(item.get("ecc")),
        virtualization=_one_of(_VIRTUALIZATIONS, item.get("virtualization")),
        fabric=_fabric(item.get("fabric")),
        health=nvidia_health.of(item),
    )


def _minor(layers: Layers, item: Mapping[str, Any], address: str | None) -> int | None:
    """NVML's; without NVML (nvidia-smi's CSV has none) the driver's own table has it."""
    minor = count(item.get("minor"))
    known = layers.listed.get(address or "")
    return minor if minor is not None else known.minor if known else None


def _driver(layers: Layers, card: pci.PciDevice | None, board: bool) -> str | None:
    if card is not None:
        return card.driver
    if board:
        return "nvgpu"
    return "nvidia" if layers.module.name == "nvidia" else None  # WSL: none of this kernel


def _problems(
    item: Mapping[str, Any], mode: MigMode, instances: tuple[MigInstance, ...], *, fabric: bool
) -> tuple[str, ...]:
    found = [NO_INSTANCES] if mode == "enabled" and not instances else []
    known = _fabric(item.get("fabric"))
    if fabric and known is not None and known.state in ("not-started", "in-progress"):
        found.append(NO_FABRIC)
    if _one_of(_COMPUTE_MODES, item.get("compute_mode")) == "prohibited":
        found.append(PROHIBITED)
    found += nvidia_health.problems(nvidia_health.of(item), fabric=fabric)
    codes = item.get("errors")
    seen = {RESET} if count(item.get("recovery_action")) in _OF_NO_USE else set()
    if isinstance(codes, dict):
        told = (_PROBLEM_OF_CODE.get(code) for code in codes.values() if isinstance(code, int))
        seen |= {problem for problem in told if problem}
    found += sorted(seen)
    return tuple(found)


def _unified(name: str | None, memory: int | None, board: bool) -> bool | None:
    """A card that tells its memory has it for itself; one that does not may be of either kind."""
    if board or re.search(_UNIFIED, name or ""):
        return True
    return False if memory else None


def _links(value: object) -> tuple[Link, ...]:
    """One for each peer and kind, with the number of links to it."""
    counts: dict[tuple[str | None, Any], int] = {}
    for item in value if isinstance(value, list) else ():
        if isinstance(item, dict):
            kind = item.get("kind")
            peer = pci.parse_address(item.get("peer"))
            key = (peer, kind if kind in ("gpu", "switch", "cpu") else None)
            counts[key] = counts.get(key, 0) + 1
    return tuple(Link("nvlink", number, *key) for key, number in counts.items())


def _fabric(value: object) -> Fabric | None:
    if not isinstance(value, dict):
        return None
    state = _one_of(_FABRIC_STATES, value.get("state"))
    return Fabric(state, count(value.get("status"))) if state is not None else None


def _one_of(names: tuple[Any, ...], value: object) -> Any:
    number = count(value)
    return names[number] if number is not None and number < len(names) else None


def groups(look: Trace, files: Sequence[str]) -> tuple[int, ...]:
    """The numeric groups of the files that are there: a container must be in them."""
    found = {look.machine.group_of(path) for path in files}
    return tuple(sorted(group for group in found if group is not None))


def _mig_mode(value: object) -> MigMode:
    return "enabled" if value == 1 else "disabled" if value == 0 else "unsupported"


def _compute(value: object) -> str | None:
    if isinstance(value, (list, tuple)) and len(value) == 2:
        major, minor = count(value[0]), count(value[1])
        if major is not None and minor is not None:
            return f"{major}.{minor}"
    return None


def cuda_version(value: object) -> str | None:
    """12040 -> "12.4"."""
    number = count(value)
    return f"{number // 1000}.{number % 1000 // 10}" if number else None
