"""The size of a MIG instance, which nvidia-smi's log tells by its parts and not by its profile."""

from __future__ import annotations

import re
from collections.abc import Mapping

# Multiprocessors of a compute instance by its slices: of the cards whose numbers are known.
_SLICES = (
    (re.compile(r"\b(?:A100|A800|A30)\b"), {14: 1, 28: 2, 42: 3, 56: 4, 98: 7}),
    (re.compile(r"\b(?:H100|H200|GH200|H800)\b"), {16: 1, 26: 1, 32: 2, 60: 3, 64: 4, 132: 7}),
)


def slices(model: str, memory_bytes: int | None, fields: Mapping[str, str]) -> list[int] | None:
    """GPU slices, compute slices and MiB, as NVML gives them; None where they are not certain.

    A GPU instance has a copy engine for each slice: a compute instance that is a part of it has
    fewer multiprocessors than go with its engines. One with media engines of its own ("+me") is
    another profile of the same size.
    """
    known = next((table for name, table in _SLICES if name.search(model)), {})
    found = known.get(_count(fields, "multiprocessor"))
    engines = _count(fields, "copy_engine")
    if found is None or memory_bytes is None:
        return None
    if found == 7 and engines in (7, 8):
        return [7, 7, memory_bytes >> 20]
    is_whole = engines == found and _count(fields, "ofa") == 0
    return [found, found, memory_bytes >> 20] if is_whole else None


def _count(fields: Mapping[str, str], name: str) -> int:
    text = fields.get(f"device_attributes/shared/{name}_count", "")
    return int(text) if re.fullmatch(r"\d{1,6}", text, re.ASCII) else -1
