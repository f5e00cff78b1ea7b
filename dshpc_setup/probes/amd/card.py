"""An AMD card as a tool tells of it: what rocm-smi and amd-smi have in common."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass


@dataclass(frozen=True)
class ToolCard:
    """A line of the tool's list; partitions of a card are lines of their own."""

    index: int
    name: str | None = None
    unique_id: int | None = None
    uuid: str | None = None  # where the tool has a name of its own for it
    address: str | None = None
    memory_bytes: int | None = None
    driver_version: str | None = None
    target: str | None = None  # gfx942
    device_id: int | None = None
    revision: int | None = None
    numa_node: int | None = None
    partition_mode: str | None = None


def target_of(text: str | None) -> str | None:
    """gfx942, GFX942, and rocm-smi's gfx9010 for gfx90a: there the last part is decimal."""
    lower = (text or "").lower()
    decimal = re.fullmatch(r"gfx90(1[0-5])", lower)
    if decimal is not None:
        return f"gfx90{int(decimal[1]):x}"
    return lower if re.fullmatch(r"gfx(?:[6-9]|1[0-9])[0-9a-f]{2}", lower) else None


def uuid_of(unique_id: int | None) -> str | None:
    """As ROCr calls it: GPU- and 16 hexadecimal digits."""
    return f"GPU-{unique_id:016x}" if unique_id and unique_id < 1 << 64 else None


def uuids(ids: list[int | None]) -> list[str | None]:
    """Of each; None for those that several share: partitions have their card's, which names none."""
    counted = Counter(ids)
    return [uuid_of(item) if counted[item] == 1 else None for item in ids]
