"""`nvidia-smi --query-gpu` in CSV, read into the same shape as NVML's answer."""

from __future__ import annotations

import csv
import re
from typing import Any

from dshpc_setup.probes.look import whole_number

_QUERY = "index,uuid,pci.bus_id,memory.total,driver_version,mig.mode.current,name"
FIELDS = tuple(_QUERY.split(","))
ARGUMENTS = (f"--query-gpu={_QUERY}", "--format=csv,noheader,nounits")

# What nvidia-smi prints where it has no value, in the spellings of its versions.
_NO_VALUE = re.compile(
    r"\[?(?:n/a|not supported|unknown error|gpu is lost|insufficient permissions"
    r"|gpu requires reset|requested functionality has been deprecated)\]?|err!|",
    re.IGNORECASE,
)


def parse(text: str) -> dict[str, Any] | None:
    """NVML's value (see machine/nvml.py) of the CSV; None where no line of it is a GPU."""
    devices: list[dict[str, Any]] = []
    driver: str | None = None
    for cells in _rows(text):
        index = whole_number(cells[0])
        if len(cells) < len(FIELDS) or index is None or not 0 <= index < 1024:
            continue
        # A name may hold a comma: it comes last, and takes what is left.
        values = [_value(cell) for cell in cells[: len(FIELDS) - 1]]
        name = _value(", ".join(cells[len(FIELDS) - 1 :]))
        _, uuid, bus, memory, version, mig, *_ = values
        driver = driver or version
        mib = whole_number(memory)
        device = {
            "index": index,
            "name": name,
            "uuid": uuid if uuid and uuid.startswith("GPU-") else None,
            "pci_bus_id": bus,
            "memory_bytes": mib << 20 if mib is not None and mib > 0 else None,
            "mig_mode": {"enabled": 1, "disabled": 0}.get((mig or "").lower()),
        }
        devices.append({key: value for key, value in device.items() if value is not None})
    if not devices:
        return None
    return {"devices": devices, **({"driver_version": driver} if driver else {})}


def _rows(text: str) -> list[list[str]]:
    rows = []
    for line in text.replace("\0", "").splitlines():
        try:
            cells = next(csv.reader([line], skipinitialspace=True), [])
        except csv.Error:
            continue
        if cells:
            rows.append([cell.strip() for cell in cells])
    return rows


def _value(cell: str) -> str | None:
    return None if _NO_VALUE.fullmatch(cell.strip()) else cell.strip()
