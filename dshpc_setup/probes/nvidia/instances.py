"""MIG instances as NVML lists them, with the device nodes that the driver's tables name."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from dshpc_setup.facts import MigInstance
from dshpc_setup.probes import naming
from dshpc_setup.probes.nvidia.values import count, text
from dshpc_setup.probes.trace import Trace, whole_number

_CAPABILITIES = "/proc/driver/nvidia/capabilities"
_MIG_MINORS = "/proc/driver/nvidia-caps/mig-minors"


def instances(
    look: Trace, item: Mapping[str, Any], node: str | None, minor: int | None
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
                memory_mib=(memory or 0) >> 20 or None,
                device_files=files,
            )
        )
    return tuple(found)


def _capability_files(
    look: Trace, node: str, minor: int, instance: tuple[int, int]
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
