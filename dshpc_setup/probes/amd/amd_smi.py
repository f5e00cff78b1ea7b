"""`amd-smi static --json` and `amd-smi list --json`, of ROCm 5.6 on: a record a GPU.

The records stand in a list, in later versions under "gpu_data". Sizes are texts ("196592 MB"),
numbers of MB, or {"value": 196592, "unit": "MB"}.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from dshpc_setup.probes import pci
from dshpc_setup.probes.amd import rocm_smi, tool_json
from dshpc_setup.probes.amd.card import ToolCard, target_of

STATIC = ("static", "--json")
LIST = ("list", "--json")

_UNITS = {"b": 1, "kb": 1 << 10, "kib": 1 << 10, "mb": 1 << 20, "mib": 1 << 20, "gb": 1 << 30,
          "gib": 1 << 30}  # fmt: skip


def parse(text: str) -> tuple[ToolCard, ...] | None:
    """The GPUs in the tool's order; () where it lists none; None where the text is no whole answer."""
    found = tool_json.pieces(text)
    if not found.whole or (not found.values and not rocm_smi.says_nothing(text)):
        return None
    cards: dict[int, dict[str, Any]] = {}
    strange = False  # another schema: that no card was found in it says nothing
    for record in tool_json.records(found.values):
        strange = strange or any(value != [] for value in record.values())
        for item in _gpus(record):
            index = tool_json.number(item.get("gpu"))
            if index is not None:
                cards.setdefault(index, {}).update(item)
    if strange and not cards:
        return None
    return tuple(_card(index, cards[index]) for index in sorted(cards))


def _gpus(record: Mapping[Any, Any]) -> Iterator[Mapping[Any, Any]]:
    if "gpu" in record:
        yield record
    for value in record.values():
        for item in value if isinstance(value, list) else ():
            if isinstance(item, dict) and "gpu" in item:
                yield item


def _card(index: int, record: Mapping[Any, Any]) -> ToolCard:
    asic, bus, vram = (_part(record, key) for key in ("asic", "bus", "vram"))
    board, driver = _part(record, "board"), _part(record, "driver")
    partition, numa = _part(record, "partition"), _part(record, "numa")
    device = tool_json.hexadecimal(asic.get("device_id"))
    node = tool_json.number(numa.get("node"))
    return ToolCard(
        index=index,
        name=tool_json.name(asic.get("market_name")) or tool_json.name(board.get("product_name")),
        unique_id=tool_json.hexadecimal(asic.get("asic_serial")),
        uuid=tool_json.said(record.get("uuid")),
        address=pci.parse_address(bus.get("bdf")) or pci.parse_address(record.get("bdf")),
        memory_bytes=size(_first(vram, "size", "size_mb", "vram_size_mb", "vram_size")),
        driver_version=tool_json.said(_first(driver, "version", "driver_version")),
        target=target_of(tool_json.said(asic.get("target_graphics_version"))),
        device_id=device if device is not None and device < 1 << 16 else None,
        revision=tool_json.hexadecimal(asic.get("rev_id")),
        numa_node=node if node is not None and node < 1 << 16 else None,
        partition_mode=rocm_smi.partition_mode(
            _first(partition, "accelerator_partition", "compute_partition")
        ),
    )


def size(value: object) -> int | None:
    """Bytes of a size; MB where it has no unit, and MB are the tool's word for MiB."""
    unit: object = "mb"
    amount = tool_json.number(value)
    if isinstance(value, dict):
        amount, unit = tool_json.number(value.get("value")), value.get("unit") or "mb"
    elif isinstance(value, str):
        match = re.fullmatch(r"\s*([0-9]{1,12})\s*([A-Za-z]{1,3})\s*", value)
        if match:
            amount, unit = int(match[1]), match[2]
    factor = _UNITS.get(unit.lower()) if isinstance(unit, str) else None
    return amount * factor if amount and factor and amount < 1 << 40 else None


def _part(record: Mapping[Any, Any], key: str) -> Mapping[Any, Any]:
    value = record.get(key)
    return value if isinstance(value, dict) else {}


def _first(record: Mapping[Any, Any], *keys: str) -> object:
    return next((record[key] for key in keys if key in record), None)
