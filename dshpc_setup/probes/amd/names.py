"""What AMD's boards are called: by the kernel, by their PCI ids, and by libdrm's table."""

from __future__ import annotations

import re

from dshpc_setup.probes import naming
from dshpc_setup.probes.amd import tool_json
from dshpc_setup.probes.trace import Trace

_TABLES = ("/usr/share/libdrm/amdgpu.ids", "/opt/amdgpu/share/libdrm/amdgpu.ids")

# Boards for computing, whose name the kernel does not always tell.
_BOARDS = {
    0x6860: "AMD Radeon Instinct MI25",
    0x66A0: "AMD Instinct MI60",
    0x66A1: "AMD Instinct MI50",
    0x66AF: "AMD Radeon VII",
    0x738C: "AMD Instinct MI100",
    0x738E: "AMD Instinct MI100",
    0x7408: "AMD Instinct MI250X",
    0x740C: "AMD Instinct MI250X",
    0x740F: "AMD Instinct MI210",
    0x7410: "AMD Instinct MI210",
    0x74A0: "AMD Instinct MI300A",
    0x74A1: "AMD Instinct MI300X",
    0x74A2: "AMD Instinct MI308X",
    0x74A5: "AMD Instinct MI325X",
    0x74A9: "AMD Instinct MI300X",
    0x74B5: "AMD Instinct MI300X",
    0x75A0: "AMD Instinct MI350X",
    0x75A3: "AMD Instinct MI355X",
}
_SHARED = frozenset((0x6860, 0x740C))  # ids of several boards: the board's own name says which

# Where the id alone is known, and it is of a whole series; libdrm's table tells them apart.
_SERIES = {
    0x6861: "AMD Radeon Pro WX 9100",
    0x687F: "AMD Radeon RX Vega",
    0x73BF: "AMD Radeon RX 6800 Series",
    0x73DF: "AMD Radeon RX 6700 Series",
    0x744C: "AMD Radeon RX 7900 Series",
    0x1586: "AMD Radeon 8060S",
}


def by_id(device_id: int | None, product: str | None = None) -> str | None:
    """A board for computing, by its PCI id; `product`: what the board calls itself."""
    if device_id in _SHARED:
        match = re.search(r"(?i)\bMI[0-9]{2,3}[AX]?\b", product or "")
        if match:
            return f"AMD Instinct {match[0].upper()}"
    return _BOARDS.get(device_id or 0)


def by_series(device_id: int | None) -> str | None:
    return _SERIES.get(device_id or 0)


def by_table(look: Trace, device_id: int | None, revision: int | None) -> str | None:
    """As libdrm's own table has it, where that is installed."""
    if device_id is None or revision is None:
        return None
    for path in _TABLES:
        name = in_table(look.text(path) or "", device_id, revision)
        if name:
            return name
    return None


def in_table(text: str, device_id: int, revision: int) -> str | None:
    """Of lines "73DF, C1, AMD Radeon RX 6700 XT"."""
    pattern = rf"^{device_id:04X},\s*{revision:02X},\s*(\S.{{0,199}})$"
    match = re.search(pattern, text, re.MULTILINE | re.IGNORECASE)
    return tool_json.name(match[1]) if match else None


def slurm_type(name: str | None, target: str | None) -> str:
    """Of "Arcturus GL-XL [Instinct MI100]" the part in brackets; of "MI60 / MI50" the first."""
    bracket = re.search(r"\[([^\]]{2,100})\]", name or "")
    words = (bracket[1] if bracket else name or "").split("/")[0]
    return naming.slurm_type(words, target or "gpu")
