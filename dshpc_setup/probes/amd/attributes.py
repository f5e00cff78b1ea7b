"""What amdgpu says of a card in the card's own device folder."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from dshpc_setup.facts import RasCount
from dshpc_setup.probes import pci
from dshpc_setup.probes.amd import kfd, rocm_smi
from dshpc_setup.probes.trace import Trace
from dshpc_setup.problems import RAS_ASLEEP

_UNCORRECTED = re.compile(r"^ue: ?(\d{1,18})\b", re.MULTILINE | re.ASCII)


@dataclass(frozen=True)
class Attributes:
    """What amdgpu says of a card in its device folder."""

    product: str | None = None
    vram_bytes: int | None = None
    mode: str | None = None  # SPX, DPX, ...
    memory_mode: str | None = None  # NPS1, NPS4, ...
    unique_id: int | None = None
    revision: int | None = None
    ras: tuple[RasCount, ...] = ()  # uncorrected errors, where there are any
    counts_errors: bool = False  # a card with RAS
    target: str | None = None  # of its table of parts, where KFD is older than the target's number


@dataclass(frozen=True)
class Layers:
    """All that is known of the cards, by PCI address."""

    cards: Mapping[str, pci.PciDevice] = field(default_factory=dict)
    attributes: Mapping[str, Attributes] = field(default_factory=dict)
    broken: frozenset[str] = frozenset()  # those that the driver calls so

    def of(self, address: str | None) -> Attributes:
        return self.attributes.get(address or "", Attributes())


def fetch(look: Trace, folder: str) -> Attributes:
    unique = look.text(f"{folder}/unique_id") or ""
    vram = look.number(f"{folder}/mem_info_vram_total")
    parts = _graphics_core(look, f"{folder}/ip_discovery/die/0")
    return Attributes(
        product=look.text(f"{folder}/product_name") or None,
        vram_bytes=vram if vram and vram > 0 else None,
        mode=rocm_smi.partition_mode(look.text(f"{folder}/current_compute_partition")),
        memory_mode=look.text(f"{folder}/current_memory_partition") or None,
        unique_id=parse_unique_id(unique),
        revision=look.number(f"{folder}/revision"),
        ras=_ras(look, f"{folder}/ras"),
        counts_errors=look.machine.exists(f"{folder}/ras"),
        target=target_of_parts(parts),
    )


def _ras(look: Trace, folder: str) -> tuple[RasCount, ...]:
    """The blocks of a card with RAS that count uncorrected errors: "umc_err_count" has "ue: 2"."""
    found = []
    for name in look.machine.listdir(folder):
        block = name.removesuffix("_err_count")
        if block == name:
            continue
        told = _UNCORRECTED.search(look.text(f"{folder}/{name}") or "")
        count = int(told[1]) if told else 0
        if count % RAS_ASLEEP:
            found.append(RasCount(block, count))
    return tuple(found)


def _graphics_core(look: Trace, die: str) -> tuple[int | None, ...]:
    """Its version; the parts stand by their hardware number, and by name as links to that."""
    part = "GC" if look.machine.exists(f"{die}/GC") else "11"
    names = ("major", "minor", "revision")
    return tuple(look.number(f"{die}/{part}/0/{name}") for name in names)


def parse_unique_id(text: str) -> int | None:
    """DRM writes 16 hexadecimal digits."""
    digits = text.strip().lower()
    good = len(digits) <= 16 and digits and all(digit in "0123456789abcdef" for digit in digits)
    return int(digits, 16) or None if good else None


# Versions of the graphics core whose target has another number.
_TARGETS = {
    (9, 0, 1): "gfx900", (9, 1, 0): "gfx902", (9, 2, 1): "gfx904", (9, 2, 2): "gfx902",
    (9, 3, 0): "gfx90c", (9, 4, 0): "gfx906", (9, 4, 1): "gfx908", (9, 4, 2): "gfx90a",
    (9, 4, 3): "gfx942", (9, 4, 4): "gfx942", (10, 1, 10): "gfx1010", (10, 1, 2): "gfx1011",
    (10, 1, 1): "gfx1012", (10, 3, 2): "gfx1031", (10, 3, 4): "gfx1032", (10, 3, 1): "gfx1033",
    (10, 3, 5): "gfx1034", (10, 3, 3): "gfx1035", (11, 0, 3): "gfx1101", (11, 0, 1): "gfx1103",
    (11, 0, 4): "gfx1103",
}  # fmt: skip


def target_of_parts(parts: tuple[int | None, ...]) -> str | None:
    """The graphics core's version as amdgpu found it in the chip: (11, 0, 0) -> gfx1100."""
    if len(parts) != 3 or any(part is None or not 0 <= part < 100 for part in parts):
        return None
    major, minor, revision = (part or 0 for part in parts)
    named = _TARGETS.get((major, minor, revision))
    return named or (kfd.gfx_target(major * 10000 + minor * 100 + revision) if major > 8 else None)
