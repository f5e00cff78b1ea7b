"""Where NVIDIA's layers contradict each other, and the cards that nobody counts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dshpc_setup import gpu_vendors
from dshpc_setup.facts import Because, Disagreement, GpuDevice, UnusedCode, UnusedGpu
from dshpc_setup.facts.nvidia_driver import WSL_FOLDER
from dshpc_setup.machine import Machine, Reply, library
from dshpc_setup.probes import pci
from dshpc_setup.probes.nvidia.layers import (
    OURS,
    PROC,
    SYS_VERSION,
    Layers,
    ProcGpu,
    same_version,
)
from dshpc_setup.probes.nvidia.values import text
from dshpc_setup.probes.trace import counted
from dshpc_setup.problems import LINUX_DRIVER_INSIDE, VERSIONS_DIFFER

_MISMATCH_CODE = 18
BOARD = "the board"  # the teller where a Tegra's own files are all that tells of its GPU


@dataclass(frozen=True)
class GpuList:
    """A list of GPUs and who told it; `cut` where the teller hung or crashed on the way."""

    teller: str  # NVML, nvidia-smi
    value: Mapping[str, Any]
    cut: Reply | None = None


def unused(
    machine: Machine, layers: Layers, devices: Iterable[GpuDevice], gpu_list: GpuList | None
) -> tuple[UnusedGpu, ...]:
    """The cards of this machine that are not in the list, each with the reason.

    A container sees all cards of its host in /sys: there nothing is said of them.
    """
    if layers.container:
        return ()
    counted = {device.pci_bus_id for device in devices}
    found = []
    for card in layers.cards:
        if card.address in counted:
            continue
        known = layers.listed.get(card.address)
        passed_over = _why_unused(machine, card, known, gpu_list)
        if passed_over is not None:
            code, reason = passed_over
            name = known.model if known else None
            found.append(UnusedGpu("nvidia", reason, card.address, name, card.driver, code))
    return tuple(found)


def _why_unused(
    machine: Machine, card: pci.PciDevice, known: ProcGpu | None, gpu_list: GpuList | None
) -> tuple[UnusedCode, str] | None:
    if card.driver == "vfio-pci":
        return "virtual-machines", "bound to vfio-pci: handed to virtual machines"
    whole = machine.readlink(f"{pci.ROOT}/{card.address}/physfn")
    if whole is not None:
        of = whole.rsplit("/", 1)[-1]
        return "virtual-machines", f"a virtual function of {of}, made for virtual machines"
    if card.driver is None:
        return "no-driver", "no kernel driver holds it"
    if card.driver not in OURS:
        return "other-driver", f"bound to {card.driver}, which is not NVIDIA's own driver"
    if known is not None and known.excluded:
        return "excluded", "excluded by a setting of the driver (NVreg_ExcludedGpus)"
    if gpu_list is None:
        return None  # nobody listed any GPU: that is not this card's doing
    if gpu_list.cut is not None:
        return "not-listed", f"{gpu_list.teller} ended before it reported it"
    return "not-listed", f"not listed by {gpu_list.teller}, though the nvidia driver holds it"


def disagreements(
    machine: Machine,
    layers: Layers,
    devices: Sequence[GpuDevice],
    gpu_list: GpuList | None,
    nvml: Reply,
) -> tuple[Disagreement, ...]:
    """All that one layer says and another denies."""
    found = [*_versions(layers, gpu_list, nvml), *_linux_driver_in_wsl(layers, devices)]
    if gpu_list is None:
        return tuple(found)
    if gpu_list.cut is not None:
        found.append(_cut_short(layers, gpu_list, len(devices)))
    elif gpu_list.teller == "nvidia-smi" and library.devices(nvml.value):
        found.append(_crashed_beside(gpu_list, nvml, len(devices)))
    if devices and not layers.kernel:
        found.append(_without_a_kernel(layers, gpu_list, len(devices)))
    elif not layers.container and not layers.dxg:
        found += _unlisted(machine, layers, devices, gpu_list)
        found += _off_the_bus(layers, devices, gpu_list)
        found += _held_by_others(layers, devices, gpu_list)
    elif layers.container and not layers.dxg:
        found += _held_by_others(layers, devices, gpu_list)
    if layers.handed_over:
        found += _nodes_of_nobody(layers, devices, gpu_list)
    found += _proc(layers, devices, gpu_list)
    return tuple(found)


def _versions(layers: Layers, gpu_list: GpuList | None, nvml: Reply) -> list[Disagreement]:
    module, versions = layers.module, []
    if module.version and not layers.wsl:
        versions = [
            (SYS_VERSION, module.sys_version),
            (f"{PROC}/version", module.proc_version),
            (
                gpu_list.teller if gpu_list else "NVML",
                text(gpu_list.value.get("driver_version")) if gpu_list else None,
            ),
        ]
    layers_of = tuple(Because(source, version) for source, version in versions if version)
    refused = nvml.code == _MISMATCH_CODE
    if refused:
        file = f"{layers.library}: {layers.library_version}" if layers.library_version else None
        says = "refuses to answer: driver and library are of different versions"
        layers_of += (Because(teller_of(nvml), f"{says} ({file})" if file else says),)
    if not refused and all(same_version(module.version, version) for _, version in versions):
        return []
    meaning = (
        "the driver's packages were updated and the old module still runs: restart the machine "
        "(or unload and load NVIDIA's modules)"
    )
    return [Disagreement("driver version", layers_of, meaning, VERSIONS_DIFFER)]


def _linux_driver_in_wsl(layers: Layers, devices: Sequence[GpuDevice]) -> list[Disagreement]:
    found = layers.wsl
    if found is None or not found.intruders:
        return []
    hides = "may hide" if devices else "hides"
    return [
        Disagreement(
            "NVIDIA driver in WSL",
            (
                Because(WSL_FOLDER, ", ".join(found.lent) or "lends no library of NVIDIA's"),
                Because(
                    "the Linux system", f"has a driver of its own: {', '.join(found.intruders)}"
                ),
            ),
            f"a Linux driver was installed inside WSL and {hides} the one that Windows lends: "
            "remove it",
            LINUX_DRIVER_INSIDE,
            packages=found.packages,
        )
    ]


def expected_count(layers: Layers, gpu_list: GpuList) -> int | None:
    """How many GPUs there should be, where a list was cut short."""
    count = gpu_list.value.get("count")
    if isinstance(count, int) and not isinstance(count, bool) and 0 <= count < 4096:
        return count
    ours = [card for card in layers.cards if card.driver in OURS]
    return len(ours) if ours and not layers.container else None


def how_cut(gpu_list: GpuList) -> str:
    """How a list came to be cut short, as a verb: a reply that is `present` only broke off."""
    ways = {"timeout": "stopped answering", "present": "broke off"}
    return ways.get(gpu_list.cut.state if gpu_list.cut else "", "crashed")


def teller_of(reply: Reply) -> str:
    """Who gave this reply: NVML, or nvidia-smi."""
    return "nvidia-smi" if "nvidia-smi" in reply.source else "NVML"


def _cut_short(layers: Layers, gpu_list: GpuList, number: int) -> Disagreement:
    count = expected_count(layers, gpu_list)
    how = how_cut(gpu_list)
    of = f" of {count}" if count is not None else ""
    ours = sum(card.driver in OURS for card in layers.cards)
    broken = gpu_list.cut is not None and gpu_list.cut.state == "present"
    why = "the answer was cut off" if broken else "one GPU or its driver is stuck"
    return Disagreement(
        "number of GPUs",
        (
            Because(
                gpu_list.teller,
                f"{how} after {number}{of}: {(gpu_list.cut and gpu_list.cut.detail) or ''}",
            ),
            Because(pci.ROOT, f"{counted(ours, 'card')} bound to NVIDIA's driver"),
        ),
        f"{why}; those that were told before it are listed, the others are not known",
        code="count",
    )


def _crashed_beside(gpu_list: GpuList, nvml: Reply, number: int) -> Disagreement:
    before = len(library.devices(nvml.value))
    return Disagreement(
        "number of GPUs",
        (
            Because("NVML", f"crashed after {before}: {nvml.detail or ''}"),
            Because(gpu_list.teller, f"lists {counted(number, 'GPU')}"),
        ),
        "a question that NVML was asked and nvidia-smi was not crashes the driver's library",
        code="count",
    )


def _without_a_kernel(layers: Layers, gpu_list: GpuList, number: int) -> Disagreement:
    return Disagreement(
        "NVIDIA driver",
        (
            Because(gpu_list.teller, f"lists {counted(number, 'GPU')}"),
            Because(pci.ROOT, "no NVIDIA card"),
            Because("/sys/module, /proc/driver/nvidia", layers.module.words),
            Because("/dev", counted(len(layers.nodes), "NVIDIA device node")),
        ),
        f"{gpu_list.teller} does not speak of this machine's own driver (a stand-in, or another root "
        "folder is read)",
    )


def _unlisted(
    machine: Machine, layers: Layers, devices: Sequence[GpuDevice], gpu_list: GpuList
) -> list[Disagreement]:
    counted = {device.pci_bus_id for device in devices}
    # A lost GPU without an address may be any of them.
    nameless = sum(device.pci_bus_id is None for device in devices)
    missing: list[tuple[pci.PciDevice, ProcGpu | None]] = [
        (
            pci.PciDevice(
                known.address, gpu_vendors.of("nvidia").pci, None, 0, "nvidia", None, None
            ),
            known,
        )
        for known in layers.listed.values()
        if layers.on_bus(known.address) is None
        and known.address not in counted
        and not known.excluded
    ]
    for card in layers.cards:
        known = layers.listed.get(card.address)
        excluded = known is not None and known.excluded
        virtual = machine.readlink(f"{pci.ROOT}/{card.address}/physfn") is not None
        if card.driver in OURS and card.address not in counted and not excluded and not virtual:
            missing.append((card, known))
    if gpu_list.cut is not None or len(missing) <= nameless:
        return []
    found = []
    for card, known in missing:
        says = [
            Because(f"{pci.ROOT}/{card.address}", f"bound to {card.driver}"),
            Because(gpu_list.teller, "does not list it"),
        ]
        if known is not None:
            says.append(Because(known.source, f"lists it: {known.model or 'unknown model'}"))
        meaning = "the driver could not start this card: `dmesg` has the reason in its NVRM lines"
        found.append(Disagreement(card.address, tuple(says), meaning, code="not-started"))
    return found


def _off_the_bus(
    layers: Layers, devices: Sequence[GpuDevice], gpu_list: GpuList
) -> list[Disagreement]:
    if not layers.cards and layers.board is not None:
        return []
    return [
        Disagreement(
            device.pci_bus_id,
            (
                Because(gpu_list.teller, f"lists {device.name or 'a GPU'} at {device.pci_bus_id}"),
                Because(pci.ROOT, "has no NVIDIA card at that address"),
            ),
            "the card left the bus after the driver started, or /sys is not this machine's",
            code="off-the-bus",
        )
        for device in devices
        if device.pci_bus_id is not None
        and not device.problems
        and layers.on_bus(device.pci_bus_id) is None
    ]


def _held_by_others(
    layers: Layers, devices: Sequence[GpuDevice], gpu_list: GpuList
) -> list[Disagreement]:
    pairs = ((device, layers.on_bus(device.pci_bus_id)) for device in devices)
    return [
        Disagreement(
            card.address,
            (
                Because(gpu_list.teller, f"lists {device.name or 'a GPU'}"),
                Because(f"{pci.ROOT}/{card.address}", f"held by {card.driver or 'no driver'}"),
            ),
            f"{gpu_list.teller} speaks of another machine's driver, or the card is changing hands",
        )
        for device, card in pairs
        if card is not None
        and card.driver not in (*OURS, *((None,) if layers.container else ()))
        and not device.problems
    ]


def _nodes_of_nobody(
    layers: Layers, devices: Sequence[GpuDevice], gpu_list: GpuList
) -> list[Disagreement]:
    """Nodes that a container was handed, of GPUs that are not in the list; a lost one may be any."""
    if gpu_list.cut is not None or any(device.minor is None for device in devices):
        return []
    own = {path for device in devices for path in device.device_files}
    return [
        Disagreement(
            path,
            (Because("/dev", "it was handed to this container"),
             Because(gpu_list.teller, "lists no GPU that it belongs to")),
            "the driver does not start the GPU behind it, or the node is one of another machine",
        )
        for path in layers.nodes
        if path not in own
    ]  # fmt: skip


def _proc(layers: Layers, devices: Sequence[GpuDevice], gpu_list: GpuList) -> list[Disagreement]:
    found = []
    for device in devices:
        known = layers.listed.get(device.pci_bus_id or "")
        if known is None:
            continue
        pairs = (
            ("UUID", device.uuid, known.uuid),
            ("minor number", device.minor, known.minor),
        )
        for what, one, other in pairs:
            if one is None or other is None or str(one).lower() == str(other).lower():
                continue
            found.append(
                Disagreement(
                    known.address,
                    (
                        Because(gpu_list.teller, f"{what} {one}"),
                        Because(known.source, f"{what} {other}"),
                    ),
                    "the list and the kernel's driver do not speak of the same card; what "
                    f"{gpu_list.teller} says is used",
                )
            )
    return found
