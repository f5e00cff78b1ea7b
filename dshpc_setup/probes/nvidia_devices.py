"""NVML's answer and sysfs, put together into devices; nothing that NVML says may trip it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from dshpc_setup.facts import GpuDevice, MigInstance, MigMode
from dshpc_setup.probes import naming, pci
from dshpc_setup.probes.look import Look, whole_number

LOST = "DSH-NV-020"  # fallen off the bus
RESET = "DSH-NV-021"  # a reset is required
NO_INSTANCES = "DSH-NV-018"  # MIG is on and nothing is cut
UNREADABLE = "DSH-NV-003"  # NVML has no handle for it, for another reason

_PROBLEM_OF_CODE = {15: LOST, 16: RESET}
_CAPABILITIES = "/proc/driver/nvidia/capabilities"
_MIG_MINORS = "/proc/driver/nvidia-caps/mig-minors"


def build(
    look: Look, cards: Sequence[pci.PciDevice], value: Mapping[str, Any], *, wsl: bool
) -> tuple[GpuDevice, ...]:
    """The devices in NVML's order. `cards` add what NVML does not know: NUMA node, near CPUs."""
    items = value.get("devices")
    reported = [item for item in items if isinstance(item, dict)] if isinstance(items, list) else []
    by_address = {card.address: card for card in cards}
    named = {pci.parse_address(item.get("pci_bus_id")) for item in reported}
    nameless = [card for card in cards if card.address not in named and card.driver == "nvidia"]
    version = text(value.get("driver_version"))
    found = []
    for position, item in enumerate(reported):
        index = count(item.get("index"))
        if index is None:
            index = position
        if "error" in item:
            # A lost card has no handle; where only one card is unaccounted for, it is that one.
            address = nameless[0].address if len(nameless) == 1 else None
            problem = _PROBLEM_OF_CODE.get(item["error"], UNREADABLE) if _hashable(item) else LOST
            found.append(
                GpuDevice(
                    index,
                    "nvidia",
                    pci_bus_id=address,
                    driver_version=version,
                    problems=(problem,),
                )
            )
            continue
        card = by_address.get(pci.parse_address(item.get("pci_bus_id")) or "")
        found.append(_device(look, item, index, card, version=version, wsl=wsl))
    return tuple(found)


def _device(
    look: Look,
    item: Mapping[str, Any],
    index: int,
    card: pci.PciDevice | None,
    *,
    version: str | None,
    wsl: bool,
) -> GpuDevice:
    name = text(item.get("name"))
    minor = count(item.get("minor"))
    # Without NVML (nvidia-smi has no minor number) the driver's own table has it.
    if minor is None and not wsl:
        minor = _minor_of(look, pci.parse_address(item.get("pci_bus_id")))
    node = "/dev/dxg" if wsl else f"/dev/nvidia{minor}" if minor is not None else None
    mode = _mig_mode(item.get("mig_mode"))
    instances = _instances(look, item, node, minor) if mode == "enabled" else ()
    problems: list[str] = [NO_INSTANCES] if mode == "enabled" and not instances else []
    codes = item.get("errors")
    if isinstance(codes, dict):
        seen = {_PROBLEM_OF_CODE.get(code) for code in codes.values() if isinstance(code, int)}
        problems += sorted(problem for problem in seen if problem)
    memory, numa = count(item.get("memory_bytes")), count(item.get("numa_node"))
    return GpuDevice(
        index=index,
        vendor="nvidia",
        name=name,
        uuid=text(item.get("uuid")),
        pci_bus_id=pci.parse_address(item.get("pci_bus_id")),
        memory_mib=memory >> 20 if memory else None,
        driver_version=version,
        compute=_compute(item.get("compute")),
        slurm_type=naming.slurm_type(name),
        device_files=(node,) if node else (),
        numa_node=numa if numa is not None else card.numa_node if card else None,
        cores=text(item.get("cpus")) or (card.cores if card else None),
        mig_mode=mode,
        mig=instances,
        problems=tuple(problems),
    )


def _instances(
    look: Look, item: Mapping[str, Any], node: str | None, minor: int | None
) -> tuple[MigInstance, ...]:
    parts = item.get("mig")
    found = []
    for part in parts if isinstance(parts, list) else ():
        if not isinstance(part, dict):
            continue
        profile = naming.profile_of(text(part.get("name")), part.get("slices"))
        memory = count(part.get("memory_bytes"))
        gi, ci = count(part.get("gi")), count(part.get("ci"))
        files: tuple[str, ...] = ()
        if node and minor is not None and gi is not None and ci is not None:
            files = _capability_files(look, node, minor, (gi, ci))
        found.append(
            MigInstance(
                profile=profile or "mig",
                uuid=text(part.get("uuid")),
                memory_mib=memory >> 20 if memory else None,
                device_files=files,
            )
        )
    return tuple(found)


def _capability_files(
    look: Look, node: str, minor: int, instance: tuple[int, int]
) -> tuple[str, ...]:
    """The card's node and the nodes of the GPU instance and the compute instance.

    () where the driver's tables name none: the card's node alone would be the same for them all.
    """
    gi, ci = instance
    group = f"gpu{minor}/gi{gi}"
    numbers = []
    for folder, short in ((f"mig/gi{gi}", group), (f"mig/gi{gi}/ci{ci}", f"{group}/ci{ci}")):
        access = look.text(f"{_CAPABILITIES}/gpu{minor}/{folder}/access")
        number = parse_minor(access or "")
        if number is None:
            number = parse_mig_minors(look.text(_MIG_MINORS) or "").get(f"{short}/access")
        if number is None:
            return ()
        numbers.append(number)
    return (node, *(f"/dev/nvidia-caps/nvidia-cap{number}" for number in numbers))


def parse_minor(access: str) -> int | None:
    """DeviceFileMinor of a capability's `access` file."""
    match = re.search(r"^DeviceFileMinor:\s*(\d{1,9})\s*$", access, re.MULTILINE | re.ASCII)
    return int(match[1]) if match else None


def parse_mig_minors(table: str) -> dict[str, int]:
    """Lines "gpu0/gi1/ci0/access 13" -> minor numbers."""
    found: dict[str, int] = {}
    for line in table.splitlines():
        words = line.split()
        number = whole_number(words[1]) if len(words) == 2 else None
        if number is not None and number >= 0:
            found[words[0]] = number
    return found


def _minor_of(look: Look, address: str | None) -> int | None:
    if address is None:
        return None
    information = look.text(f"/proc/driver/nvidia/gpus/{address}/information") or ""
    match = re.search(r"^Device Minor:\s*(\d{1,4})\s*$", information, re.MULTILINE | re.ASCII)
    return int(match[1]) if match else None


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


def text(value: object) -> str | None:
    """A text that says something, without white space around it."""
    return value.strip() or None if isinstance(value, str) else None


def count(value: object) -> int | None:
    """A whole number of 0 or more."""
    good = isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 63
    return value if good else None  # type: ignore[return-value]


def _hashable(item: Mapping[str, Any]) -> bool:
    return isinstance(item["error"], int)
