"""`rocm-smi --json`, of ROCm 3 to 7: an object a card, all values texts, keys as each version has them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from dshpc_setup.probes import pci
from dshpc_setup.probes.amd import tool_json
from dshpc_setup.probes.amd.card import ToolCard, target_of

# No driver version: some versions print that table alone where it is asked for beside others.
ARGUMENTS = (
    "--showproductname", "--showid", "--showuniqueid", "--showbus", "--showmeminfo", "vram", "--json"
)  # fmt: skip
READING_ARGUMENTS = (
    "--showbus", "--showmeminfo", "vram", "--showuse", "--showtemp", "--showpower", "--json"
)  # fmt: skip


def parse(text: str) -> tuple[ToolCard, ...] | None:
    """The cards by their numbers; () where it lists none; None where the text is no whole answer."""
    found = tool_json.pieces(text)
    cards: dict[int, dict[str, Any]] = {}
    system: dict[str, Any] = {}
    strange = False  # another schema: that no card was found in it says nothing
    for record in tool_json.records(found.values):
        for key, value in record.items():
            match = re.fullmatch(r"(?i)card\s?([0-9]{1,4})", key)
            if match and isinstance(value, dict):
                cards.setdefault(int(match[1]), {}).update(_plain(value))
            elif key.lower() == "system" and isinstance(value, dict):
                system.update(_plain(value))
            else:
                strange = True
    if not found.whole or (not found.values and not says_nothing(text)):
        return None
    if strange and not cards:
        return None
    version = tool_json.said(system.get("driver version"))
    return tuple(
        replace(card, driver_version=card.driver_version or version)
        for number in sorted(cards)
        if (card := _card(number, cards[number]))
    )


def says_nothing(text: str) -> bool:
    """Whether the tool says in its own words that there is no card, or no driver."""
    return re.search(_NONE, text) is not None


_NONE = (
    r"(?i)no json data|not initialized|not loaded|not found in modules|unable to detect any gpu|"
    r"no (amd )?gpus? (were |was )?(found|detected|available)|driver_not_loaded|no such device|"
    r"no supported devices|amdgpu .{0,20}not (found|available)"
)


def _plain(card: Mapping[Any, Any]) -> dict[str, Any]:
    """With keys that do not depend on the version: "Card Series", "Card series" are one."""
    return {" ".join(str(key).lower().split()).rstrip(" :"): item for key, item in card.items()}


def _card(index: int, card: Mapping[str, Any]) -> ToolCard:
    names = (card.get(key) for key in ("card series", "device name", "market name", "card model"))
    ids = (card.get(key) for key in ("device id", "gpu id", "card model"))
    numa = tool_json.number(card.get("(topology) numa node"))
    return ToolCard(
        index=index,
        name=next((name for item in names if (name := tool_json.name(item))), None),
        unique_id=tool_json.hexadecimal(card.get("unique id")),
        address=pci.parse_address(card.get("pci bus")),
        memory_bytes=tool_json.number(card.get("vram total memory (b)")),
        driver_version=tool_json.said(card.get("driver version")),
        target=target_of(tool_json.said(card.get("gfx version"))),
        device_id=next((number for item in ids if (number := _device_id(item))), None),
        revision=tool_json.hexadecimal(card.get("device rev")),
        numa_node=numa if numa is not None and numa < 1 << 16 else None,
        partition_mode=partition_mode(card.get("compute partition")),
    )


def _device_id(value: object) -> int | None:
    number = tool_json.hexadecimal(value)
    return number if number is not None and 0 < number < 1 << 16 else None


def partition_mode(value: object) -> str | None:
    """SPX, DPX, TPX, QPX, CPX."""
    text = (tool_json.said(value) or "").upper()
    return text if re.fullmatch(r"[SDTQC]PX", text) else None
