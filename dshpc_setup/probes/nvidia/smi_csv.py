"""`nvidia-smi --query-gpu` in CSV and `nvidia-smi -L`, read into the shape of NVML's answer.

Both say less than `nvidia-smi -q -x` (nvidia_xml.py); only the list names MIG instances' profiles
and UUIDs, which most versions of the XML leave out.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Sequence
from typing import Any

from dshpc_setup.probes import pci
from dshpc_setup.probes.nvidia import smi_fields as nvidia_fields
from dshpc_setup.probes.nvidia import smi_log as nvidia_log
from dshpc_setup.probes.nvidia.smi_fields import Table
from dshpc_setup.probes.nvidia.smi_log import Fields

# One field that an nvidia-smi does not know fails the whole query, so there are poorer ones: the
# compute capability came with driver 495, MIG with 450. The name comes last, since it may hold a comma.
_BEGINNING = ("index", "uuid", "pci.bus_id", "memory.total", "driver_version")
_MODES = ("mig.mode.current", "persistence_mode", "compute_mode", "ecc.mode.current")
FIELDS = (*_BEGINNING, *_MODES, "compute_cap", "name")
POORER: tuple[tuple[str, ...], ...] = ((*_BEGINNING, *_MODES, "name"), (*_BEGINNING, "name"))


def query(fields: Sequence[str]) -> tuple[str, ...]:
    """The arguments that ask for these fields."""
    return f"--query-gpu={','.join(fields)}", "--format=csv,noheader,nounits"


ARGUMENTS = query(FIELDS)
LIST_ARGUMENTS = ("-L",)
MEASURED = (
    "index", "uuid", "pci.bus_id", "memory.used", "memory.total", "utilization.gpu",
    "temperature.gpu", "power.draw", "power.limit",
)  # fmt: skip
MEASURED_ARGUMENTS = query(MEASURED)

_MOST_CHARACTERS = 1 << 20
_MOST_CELLS = 1000
_READ: Table = (
    ("name", nvidia_fields.label, ("name", "gpu_name")),
    ("uuid", nvidia_fields.gpu_uuid, ("uuid", "gpu_uuid")),
    ("pci_bus_id", nvidia_fields.label, ("pci.bus_id", "gpu_bus_id")),
    ("memory_bytes", nvidia_fields.total_size, ("memory.total",)),
    ("mig_mode", nvidia_fields.switch, ("mig.mode.current",)),
    ("compute", nvidia_fields.compute_capability, ("compute_cap",)),
    ("persistence", nvidia_fields.switch, ("persistence_mode",)),
    ("compute_mode", nvidia_fields.compute_mode, ("compute_mode",)),
    ("ecc", nvidia_fields.switch, ("ecc.mode.current",)),
)
_MEASURED: Table = (
    ("uuid", nvidia_fields.gpu_uuid, ("uuid", "gpu_uuid")),
    ("pci_bus_id", nvidia_fields.label, ("pci.bus_id", "gpu_bus_id")),
    ("memory_used_bytes", nvidia_fields.size, ("memory.used",)),
    ("memory_total_bytes", nvidia_fields.total_size, ("memory.total",)),
    ("utilization", nvidia_fields.percent, ("utilization.gpu",)),
    ("temperature_c", nvidia_fields.celsius, ("temperature.gpu",)),
    ("power_mw", nvidia_fields.milliwatts, ("power.draw",)),
    ("power_limit_mw", nvidia_fields.milliwatts, ("power.limit",)),
)
_GPU_LINE = re.compile(r"GPU (\d{1,4}): (.{1,200}) \(UUID: (GPU-[\w-]{1,80})\)")
_MIG_LINE = re.compile(
    r"MIG ((?:\d{1,2}c\.)?\d{1,2}g\.\d{1,4}gb\S{0,20}) +Device +(\d{1,4}): "
    r"\(UUID: (MIG-[\w/-]{1,100})\)"
)


def parse(text: str, columns: tuple[str, ...] = FIELDS) -> dict[str, Any] | None:
    """NVML's value (see machine/nvml.py) of the CSV; None where no line of it is a GPU.

    Columns are those of the header line where there is one.
    """
    text = text[:_MOST_CHARACTERS]
    devices: list[dict[str, Any]] = []
    driver: str | None = None
    for fields in _cards(text, columns):
        device, errors = _device(fields, len(devices), _READ)
        driver = driver or nvidia_fields.version(fields.get("driver_version", ""))
        devices.append({**device, "errors": errors})
    if not devices:
        return None
    devices = nvidia_log.with_lost(devices, text) if nvidia_log.lost(text) else devices
    return {"devices": devices, **({"driver_version": driver} if driver else {})}


def readings(text: str) -> dict[str, Any] | None:
    """The value of machine/nvml.py's `ask_readings`; None where no line is a GPU."""
    devices: list[dict[str, Any]] = []
    for fields in _cards(text[:_MOST_CHARACTERS], MEASURED):
        device, errors = _device(fields, len(devices), _MEASURED)
        devices.append({**device, "errors": errors})
    return {"devices": devices} if devices else None


def _cards(text: str, columns: tuple[str, ...]) -> Iterator[Fields]:
    """The GPUs' lines, by columns: those of a header line from there on."""
    for cells in _rows(text):
        if header := _header(cells):
            columns = header
        elif fields := _named(cells, columns):
            yield fields


def parse_list(text: str) -> dict[str, Any] | None:
    """NVML's value of `nvidia-smi -L`: names, UUIDs and MIG instances; None where it lists no GPU."""
    text = text[:_MOST_CHARACTERS]
    devices: list[dict[str, Any]] = []
    for line in (each[:500].strip() for each in text.splitlines()):
        if match := _GPU_LINE.fullmatch(line):
            found = {"index": int(match[1]), "name": match[2].strip(), "uuid": match[3]}
            devices.append({**found, "errors": {}})
        elif devices and (match := _MIG_LINE.fullmatch(line)):
            devices[-1]["mig_mode"] = 1
            devices[-1].setdefault("mig", []).append(_instance(devices[-1]["name"], match))
    return {"devices": devices} if devices else None


def add_list(value: dict[str, Any], listed: dict[str, Any] | None) -> dict[str, Any]:
    """A value of `nvidia-smi -q -x`, and what only the list says: MIG profiles and UUIDs.

    Nothing that the value holds is changed; instances are the same where card and number are.
    """
    by_uuid = {device["uuid"]: device for device in (listed or {}).get("devices", ())}
    devices = []
    for device in value.get("devices", ()):
        parts = by_uuid.get(device.get("uuid"), {}).get("mig", [])
        by_index = {part["index"]: part for part in parts}
        if own := device.get("mig"):
            mig = [{**by_index.get(part.get("index"), {}), **part} for part in own]
        else:
            mig = parts
        devices.append({**device, "mig": mig} if mig else device)
    return {**value, "devices": devices}


def fill(value: dict[str, Any], more: dict[str, Any] | None) -> dict[str, Any]:
    """A value, and what only the other one says of the same cards."""
    by_uuid = {item["uuid"]: item for item in (more or {}).get("devices", ()) if "uuid" in item}
    devices = []
    for device in value["devices"]:
        known = {**device, **device.get("errors", {})}
        other = by_uuid.get(device.get("uuid"), {})
        new = {key: item for key, item in other.items() if key not in known}
        devices.append({**device, **new})
    return {**value, "devices": devices}


def _instance(card: str, match: re.Match[str]) -> dict[str, Any]:
    found: dict[str, Any] = {
        "index": int(match[2]),
        "name": f"{card} MIG {match[1]}",
        "uuid": match[3],
    }
    # Before driver 470 the UUID is made of the card's, the GPU instance and the compute instance.
    if ids := re.fullmatch(r"MIG-GPU-[\w-]+/(\d{1,4})/(\d{1,4})", match[3], re.ASCII):
        found["gi"], found["ci"] = int(ids[1]), int(ids[2])
    return {**found, "errors": {}}


def _device(fields: Fields, position: int, table: Table) -> tuple[dict[str, Any], dict[str, int]]:
    found: dict[str, Any] = {"index": nvidia_fields.count(fields.get("index", str(position)))}
    errors: dict[str, int] = {}
    nvidia_fields.put_all(found, errors, fields, table)
    return found, errors


def _header(cells: list[str]) -> tuple[str, ...] | None:
    names = tuple(re.sub(r"\s*\[.*", "", cell[:100]).lower() for cell in cells)
    return names if "uuid" in names and ("name" in names or "index" in names) else None


def _named(cells: list[str], columns: tuple[str, ...]) -> Fields | None:
    """The cells by their columns; None where the line is no GPU's."""
    surplus = len(cells) - len(columns)
    if surplus < 0:
        return None
    if surplus and "name" in columns:
        at = columns.index("name")
        cells = [*cells[:at], ", ".join(cells[at : at + surplus + 1]), *cells[at + surplus + 1 :]]
    fields = {column: cell for column, cell in zip(columns, cells, strict=False) if cell}
    if "index" in columns:
        index = nvidia_fields.count(fields.get("index", ""))
        return fields if index is not None and index < 1024 else None
    has_address = any(pci.parse_address(fields.get(key)) for key in ("pci.bus_id", "gpu_bus_id"))
    return fields if has_address or nvidia_fields.gpu_uuid(fields.get("uuid", "")) else None


def _rows(text: str) -> list[list[str]]:
    rows = []
    for line in text.replace("\0", "").removeprefix("\ufeff").splitlines():
        try:
            cells = next(csv.reader([line], skipinitialspace=True), [])
        except csv.Error:
            continue
        if cells:
            rows.append([cell.strip() for cell in cells[:_MOST_CELLS]])
    return rows
