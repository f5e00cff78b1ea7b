"""What `nvidia-smi -q` logs of each GPU, put into the shapes in which NVML answers.

The log is a tree, in XML as in plain text. Here it is flat: each value by its path, names as the XML
has them (`fb_memory_usage/total`) or as the plain text has them in small letters
(`mig_mode/current`), so that one table of paths reads every schema.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from dshpc_setup.probes import pci
from dshpc_setup.probes.nvidia import slices as nvidia_slices
from dshpc_setup.probes.nvidia import smi_fields as nvidia_fields
from dshpc_setup.probes.nvidia.smi_fields import (
    LOST,
    RESET,
    UNKNOWN,
    Reader,
    Table,
    code_of,
    put_all,
)

_NO_HANDLE = re.compile(
    r"Unable to determine the device handle for GPU ?(?P<index>\d{1,4}(?=:(?:\s|$)))?[: ]*"
    r"(?P<address>[0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.\d)?[: ]*(?P<why>[^\r\n]{0,200})"
)

Fields = dict[str, str]


@dataclass
class Card:
    fields: Fields = field(default_factory=dict)
    parts: list[Fields] = field(default_factory=list)  # its MIG instances


@dataclass
class Log:
    general: Fields = field(default_factory=dict)
    cards: list[Card] = field(default_factory=list)


def facts(log: Log, output: str) -> dict[str, Any] | None:
    """NVML's value (see machine/nvml.py); None where the log holds no GPU.

    `output` is all that nvidia-smi printed: before its log it names the cards that it cannot reach.
    """
    value: dict[str, Any] = {}
    driver = _general(log, nvidia_fields.version, "driver_version", "kmd_version")
    cuda = _general(log, nvidia_fields.cuda_version, "cuda_version", "cuda_umd_version")
    attached = _general(log, nvidia_fields.count, "attached_gpus")
    for key, found in (("driver_version", driver), ("cuda_version", cuda), ("count", attached)):
        if found is not None:
            value[key] = found
    value["devices"] = with_lost([_device(card) for card in log.cards], output)
    return value if log.cards else None


def readings(log: Log, output: str) -> dict[str, Any] | None:
    """The value of machine/nvml.py's `ask_readings`; None where the log holds no GPU."""
    devices = []
    for card in log.cards:
        found: dict[str, Any] = {}
        errors: dict[str, int] = {}
        put_all(found, errors, card.fields, _MEASURED)
        parts: list[dict[str, Any]] = []
        for fields in card.parts:
            part: dict[str, Any] = {}
            put_all(part, {}, fields, _MEASURED_PART)
            parts.append(part)
        devices.append({**found, **({"mig": parts} if parts else {}), "errors": errors})
    return {"devices": with_lost(devices, output)} if devices else None


def lost(output: str) -> list[dict[str, Any]]:
    """The cards that nvidia-smi says it has no handle for, as NVML's value has such ones."""
    found = []
    for match in islice(_NO_HANDLE.finditer(output), 64):
        why = match["why"].strip()
        card: dict[str, Any] = {"error": code_of(why) or UNKNOWN, "text": why or "no handle"}
        if match["index"]:
            card["index"] = int(match["index"])
        if address := pci.parse_address(match["address"]):
            card["pci_bus_id"] = address
        found.append(card)
    return found


def with_lost(devices: list[dict[str, Any]], output: str) -> list[dict[str, Any]]:
    """The devices, and among them those that have no handle, in NVML's order: by PCI address."""
    found = list(devices)
    for card in lost(output):
        known = {pci.parse_address(device.get("pci_bus_id")) for device in found}
        if card.get("pci_bus_id") not in known - {None}:
            found.insert(_place(found, card), card)
    return [{"index": index, **_without_index(device)} for index, device in enumerate(found)]


def _without_index(device: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in device.items() if key != "index"}


def _place(devices: list[dict[str, Any]], card: dict[str, Any]) -> int:
    address = card.get("pci_bus_id")
    if address is None:
        return int(card.get("index", len(devices)))
    for place, device in enumerate(devices):
        other = pci.parse_address(device.get("pci_bus_id"))
        if other is not None and (len(other), other) > (len(address), address):
            return place
    return len(devices)


def _device(card: Card) -> dict[str, Any]:
    found: dict[str, Any] = {}
    errors: dict[str, int] = {}
    put_all(found, errors, card.fields, _FACTS)
    if "mig_mode" in errors:
        errors.pop("mig_pending", None)  # the same is said of both
    _put_fabric(found, errors, card.fields)
    _put_health(found, card.fields)
    if card.parts or found.get("mig_mode") == 1:
        model = found.get("name", "")
        found["mig"] = [_instance(part, at, model) for at, part in enumerate(card.parts)]
    for path, text in card.fields.items():
        code = code_of(text)
        if code in (LOST, RESET) and code not in errors.values():
            errors[path] = code
    if card.fields.get("gpu_reset_status/reset_required", "").lower() == "yes":
        errors["recovery"] = RESET
    return {**found, "errors": errors}


def _instance(fields: Fields, index: int, model: str) -> dict[str, Any]:
    found: dict[str, Any] = {"index": index}
    errors: dict[str, int] = {}
    put_all(found, errors, fields, _PART)
    if slices := nvidia_slices.slices(model, found.get("memory_bytes"), fields):
        found["slices"] = slices
    return {**found, "errors": errors}


def _put_fabric(found: dict[str, Any], errors: dict[str, int], fields: Fields) -> None:
    put_all(found, errors, fields, (("fabric", nvidia_fields.fabric_state, ("fabric/state",)),))
    if "fabric" not in found:
        return
    found["fabric"] = {"state": found["fabric"]}
    status = fields.get("fabric/status")
    if status is not None and status.lower() == "success":
        found["fabric"]["status"] = 0
    elif status is not None and status.strip("[]").lower() != "n/a":
        found["fabric"]["status"] = code_of(status) or UNKNOWN


def _put_health(found: dict[str, Any], fields: Fields) -> None:
    """What the card counts of its own faults; nothing where nvidia-smi has "N/A"."""
    for key, table in (("ecc_errors", _ECC), ("remapped", _REMAPPED)):
        told: dict[str, Any] = {}
        put_all(told, {}, fields, table)
        if key == "ecc_errors":
            for when in ("volatile", "aggregate"):
                _add_kinds(told, fields, when)
        if told:
            found[key] = told
    if isinstance(found.get("fabric"), dict):
        found["fabric"].update(_fabric_health(fields))


def _add_kinds(told: dict[str, Any], fields: Fields, when: str) -> None:
    """Since driver 535 the chip's errors are told by kind: parity, and two bits of a word."""
    kinds = (
        fields.get(f"ecc_errors/{when}/sram_uncorrectable_{kind}") for kind in ("parity", "secded")
    )
    counts = [count for text in kinds if text and (count := nvidia_fields.count(text)) is not None]
    if counts and f"{when}_sram" not in told:
        told[f"{when}_sram"] = sum(counts)


def _fabric_health(fields: Fields) -> dict[str, int]:
    """As NVML's mask and summary have it, of what is said to be wrong."""
    mask = 0
    for paths, bad, bits in _FABRIC_HEALTH:
        text = next((fields[path] for path in paths if fields.get(path)), "").strip().lower()
        mask |= bits if text in bad else 0
    summary = fields.get("fabric/health/summary", "").strip().lower()
    number = {"healthy": 1, "unhealthy": 2, "limited capacity": 3}.get(summary)
    found = {"health_mask": mask} if mask else {}
    return found if number is None else {**found, "health_summary": number}


def _general(log: Log, read: Reader, *names: str) -> Any:
    for name in names:
        value = read(log.general.get(name, ""))
        if value is not None:
            return value
    return None


_ADDRESS = ("id", "pci/pci_bus_id", "pci/bus_id")
_UUID = ("uuid", "gpu_uuid")
_MEMORY = ("fb_memory_usage", "memory_usage", "shared_fb_memory_usage")
_POWER = ("gpu_power_readings", "power_readings")
_DRAWN = ("power_draw", "average_power_draw", "instant_power_draw", "instantaneous_power_draw")
_LIMIT = ("current_power_limit", "enforced_power_limit", "power_limit")


def _under(folders: tuple[str, ...], *names: str) -> tuple[str, ...]:
    return tuple(f"{folder}/{name}" for folder in folders for name in names)


_FACTS: Table = (
    ("name", nvidia_fields.label, ("product_name",)),
    ("uuid", nvidia_fields.gpu_uuid, _UUID),
    ("pci_bus_id", pci.parse_address, _ADDRESS),
    ("memory_bytes", nvidia_fields.total_size, _under(_MEMORY, "total")),
    ("minor", nvidia_fields.count, ("minor_number",)),
    ("mig_mode", nvidia_fields.switch, ("mig_mode/current_mig", "mig_mode/current")),
    ("mig_pending", nvidia_fields.switch, ("mig_mode/pending_mig", "mig_mode/pending")),
    (
        "retired_pending",
        nvidia_fields.yes,
        (
            "retired_pages/pending_retirement",
            "retired_pages/pending_blacklist",
            "retired_pages/pending_page_blacklist",
        ),
    ),
    ("recovery_action", nvidia_fields.recovery_action, ("gpu_recovery_action",)),
    ("persistence", nvidia_fields.switch, ("persistence_mode",)),
    ("compute_mode", nvidia_fields.compute_mode, ("compute_mode",)),
    ("ecc", nvidia_fields.switch, ("ecc_mode/current_ecc", "ecc_mode/current")),
    (
        "virtualization",
        nvidia_fields.virtualization,
        ("gpu_virtualization_mode/virtualization_mode",),
    ),
)
_ECC: Table = (
    (
        "volatile_dram",
        nvidia_fields.count,
        ("ecc_errors/volatile/dram_uncorrectable", "ecc_errors/volatile/double_bit/total"),
    ),
    ("volatile_sram", nvidia_fields.count, ("ecc_errors/volatile/sram_uncorrectable",)),
    (
        "aggregate_dram",
        nvidia_fields.count,
        ("ecc_errors/aggregate/dram_uncorrectable", "ecc_errors/aggregate/double_bit/total"),
    ),
    ("aggregate_sram", nvidia_fields.count, ("ecc_errors/aggregate/sram_uncorrectable",)),
    ("sram_threshold", nvidia_fields.yes, ("ecc_errors/aggregate/sram_threshold_exceeded",)),
)
_REMAPPED: Table = (
    (
        "uncorrectable",
        nvidia_fields.count,
        ("remapped_rows/remapped_row_unc", "remapped_rows/uncorrectable_error"),
    ),
    ("pending", nvidia_fields.yes, ("remapped_rows/remapped_row_pending", "remapped_rows/pending")),
    (
        "failed",
        nvidia_fields.yes,
        ("remapped_rows/remapped_row_failure", "remapped_rows/remapping_failure_occurred"),
    ),
)
# Paths, what is wrong, and the bits of NVML's mask (nvml.h: NVML_GPU_FABRIC_HEALTH_MASK_...)
_FABRIC_HEALTH: tuple[tuple[tuple[str, ...], tuple[str, ...], int], ...] = (
    (("fabric/health/bandwidth",), ("degraded",), 1),
    (
        ("fabric/health/route_recovery_in_progress", "fabric/health/route_recovery"),
        ("true", "yes"),
        1 << 2,
    ),
    (("fabric/health/route_unhealthy",), ("true", "yes"), 1 << 4),
    (("fabric/health/access_timeout_recovery",), ("true", "yes"), 1 << 6),
)
_PART: Table = (
    ("index", nvidia_fields.count, ("index",)),
    ("uuid", nvidia_fields.mig_uuid, ("uuid", "mig_uuid")),
    ("gi", nvidia_fields.count, ("gpu_instance_id",)),
    ("ci", nvidia_fields.count, ("compute_instance_id",)),
    ("memory_bytes", nvidia_fields.total_size, _under(_MEMORY, "total")),
)
_MEASURED: Table = (
    ("uuid", nvidia_fields.gpu_uuid, _UUID),
    ("pci_bus_id", pci.parse_address, _ADDRESS),
    ("memory_used_bytes", nvidia_fields.size, _under(_MEMORY, "used")),
    ("memory_total_bytes", nvidia_fields.total_size, _under(_MEMORY, "total")),
    ("utilization", nvidia_fields.percent, ("utilization/gpu_util", "utilization/gpu")),
    (
        "temperature_c",
        nvidia_fields.celsius,
        ("temperature/gpu_temp", "temperature/gpu_current_temp"),
    ),
    ("power_mw", nvidia_fields.milliwatts, _under(_POWER, *_DRAWN)),
    ("power_limit_mw", nvidia_fields.milliwatts, _under(_POWER, *_LIMIT)),
)
_MEASURED_PART: Table = (
    ("index", nvidia_fields.count, ("index",)),
    ("uuid", nvidia_fields.mig_uuid, ("uuid", "mig_uuid")),
    ("gi", nvidia_fields.count, ("gpu_instance_id",)),
    ("ci", nvidia_fields.count, ("compute_instance_id",)),
    ("memory_used_bytes", nvidia_fields.size, _under(_MEMORY, "used")),
    ("memory_total_bytes", nvidia_fields.total_size, _under(_MEMORY, "total")),
)
