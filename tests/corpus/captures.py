"""What a folder of captures holds, read by means as simple as can be: no parser of ours is used."""

from __future__ import annotations

import csv
import itertools
import json
import os
import re
from dataclasses import dataclass, field
from pathlib import Path

FOLDER = Path(
    os.environ.get("DSHPC_CORPUS") or Path(__file__).parents[2].parent / "shared" / "corpus"
)
"""Real captures, laid out as its README says: nvidia-smi/, rocm-smi/, kfd-topology/."""


@dataclass(frozen=True)
class Card:
    """What a capture states of a GPU; None where it does not."""

    name: str | None = None
    uuid: str | None = None
    pci: str | None = None
    memory_mib: int | None = None
    mig: tuple[str | None, ...] = ()  # the profile of each instance


@dataclass(frozen=True)
class Capture:
    """A capture, the answers that a stub of the tool gives from it, and what they state."""

    name: str
    cards: tuple[Card, ...]
    answers: dict[str, str] = field(default_factory=dict)  # by arguments; "": whatever is asked
    table: str = ""  # a CSV with every column, for --query-gpu


def xml_captures() -> list[Capture]:
    return [_xml(path) for path in sorted(FOLDER.glob("nvidia-smi/*.xml"))]


def _xml(path: Path) -> Capture:
    text = path.read_text(errors="replace")
    cards = []
    for whole in re.split(r"<gpu id=", text)[1:]:
        block, *parts = re.split(r"<mig_device>.*?</mig_device>", whole, flags=re.DOTALL)
        mig = (None,) * len(parts)
        block = "".join([block, *parts])
        memory = _tag(block.partition("<fb_memory_usage>")[2], "total")
        cards.append(
            Card(
                _tag(block, "product_name"),
                _tag(block, "uuid"),
                address(block.partition('"')[2].partition('"')[0]),
                _mib(memory),
                mig,
            )
        )
    return Capture(path.name, tuple(cards), {"-q -x": text})


def text_captures() -> list[Capture]:
    """Each file as several tools: one that has a log, one that has a table, one that has a list."""
    found = []
    for path in sorted(FOLDER.glob("nvidia-smi/*.txt")):
        sections = _sections(path.read_text(errors="replace"))
        lists = [text for command, text in sections if command == "nvidia-smi -L"]
        logs = [text for command, text in sections if command == "nvidia-smi -q"]
        tables = [text for command, text in sections if "--query-gpu=" in command]
        listed = {"-L": lists[0]} if lists else {}
        for number, text in enumerate(logs):
            name = f"{path.name} -q {number}"
            found.append(Capture(name, _log_cards(text, listed), {"-q -x": text, **listed}))
        for number, text in enumerate(tables):
            cards = _table_cards(text, listed)
            found.append(Capture(f"{path.name} CSV {number}", cards, listed, text))
        if listed:
            found.append(Capture(f"{path.name} -L", _list_cards(lists[0]), listed))
    return found


def _sections(text: str) -> list[tuple[str, str]]:
    """Between lines of #: "# $ command", and then what it printed up to the next line of #."""
    parts = re.split(r"^#{20,}\n", text, flags=re.MULTILINE)
    found = []
    for head, body in itertools.pairwise(parts):
        command = re.search(r"^# \$ (.*?)\s*$", head, re.MULTILINE)
        if command:
            found.append((command[1], body))
    return found


def _log_cards(text: str, listed: dict[str, str]) -> tuple[Card, ...]:
    said = re.search(r"^Attached GPUs\s*: (\d+)", text, re.MULTILINE)
    blocks = re.split(r"^GPU (?=[0-9A-F]{8}:)", text, flags=re.MULTILINE)[1:]
    assert said
    assert int(said[1]) == len(blocks), "the capture itself is at odds"
    cards = []
    for number, block in enumerate(blocks):
        memory = re.search(r"^ +FB Memory Usage\n +Total +: (\d+) MiB", block, re.MULTILINE)
        cards.append(
            Card(
                _labelled(block, "Product Name"),
                _labelled(block, "GPU UUID"),
                address(block.splitlines()[0]),
                int(memory[1]) if memory else None,
                _profiles(listed, number),
            )
        )
    return tuple(cards)


def _table_cards(text: str, listed: dict[str, str]) -> tuple[Card, ...]:
    rows = table_rows(text)
    return tuple(
        Card(
            row["name"],
            row["uuid"],
            address(row["pci.bus_id"]),
            _mib(row["memory.total"]),
            _profiles(listed, number),
        )
        for number, row in enumerate(rows)
    )


def table_rows(text: str) -> list[dict[str, str]]:
    """Column (without its unit) -> cell, for each line below the header."""
    lines = [line for line in text.splitlines() if line.strip()]
    header, *rows = csv.reader(lines, skipinitialspace=True)
    names = [re.sub(r" \[.*\]$", "", name) for name in header]
    return [dict(zip(names, row, strict=False)) for row in rows]


def _list_cards(text: str) -> tuple[Card, ...]:
    lines = re.findall(r"^GPU \d+: (.*) \(UUID: (\S+)\)", text, re.MULTILINE)
    return tuple(
        Card(name, uuid, mig=_profiles({"-L": text}, number))
        for number, (name, uuid) in enumerate(lines)
    )


def _profiles(listed: dict[str, str], number: int) -> tuple[str | None, ...]:
    blocks = re.split(r"^GPU \d+: ", listed.get("-L", ""), flags=re.MULTILINE)[1:]
    block = blocks[number] if number < len(blocks) else ""
    return tuple(re.findall(r"^\s+MIG (\S+)", block, re.MULTILINE))


def rocm_captures() -> list[Capture]:
    found = []
    for path in sorted(FOLDER.glob("rocm-smi/*.json")):
        text = path.read_text()
        value = json.loads(text)
        keys = sorted((key for key in value if re.fullmatch(r"card\d+", key)), key=_number)
        cards = tuple(
            Card(
                pci=address(value[key].get("PCI Bus")),
                memory_mib=int(value[key].get("VRAM Total Memory (B)", 0)) >> 20 or None,
            )
            for key in keys
        )
        found.append(Capture(path.name, cards, {"": text}))
    return found


def kfd_trees() -> list[tuple[Path, tuple[Card, ...]]]:
    """Every folder with nodes/N/properties, and its GPU nodes in the order of their numbers."""
    found = []
    for nodes in sorted(FOLDER.glob("kfd-topology/**/nodes")):
        cards = []
        for node in sorted(nodes.iterdir(), key=lambda path: int(path.name)):
            said = _properties(node / "properties")
            if int(said.get("simd_count", 0)) > 0:
                cards.append(Card(pci=_kfd_address(said), memory_mib=_kfd_memory(node)))
        found.append((nodes, tuple(cards)))
    return found


def _properties(path: Path) -> dict[str, str]:
    lines = (line.split() for line in path.read_text().splitlines())
    return {words[0]: words[1] for words in lines if len(words) == 2}


def _kfd_address(said: dict[str, str]) -> str | None:
    if "location_id" not in said:
        return None
    place = int(said["location_id"])
    domain = int(said.get("domain", 0))
    return f"{domain:04x}:{place >> 8 & 255:02x}:{place >> 3 & 31:02x}.{place & 7}"


def _kfd_memory(node: Path) -> int | None:
    banks = [_properties(path) for path in sorted(node.glob("mem_banks/*/properties"))]
    sizes = [int(bank["size_in_bytes"]) for bank in banks if bank.get("heap_type") in ("1", "2")]
    return sum(sizes) >> 20 if sizes else None


def address(text: str | None) -> str | None:
    """00000000:00:1E.0 as 0000:00:1e.0."""
    match = re.search(r"([0-9a-fA-F]{4}):([0-9a-fA-F]{2}):([0-9a-fA-F]{2}\.[0-7])", text or "")
    return ":".join(match.groups()).lower() if match else None


def _tag(block: str, tag: str) -> str | None:
    match = re.search(rf"<{tag}>(.*?)</{tag}>", block)
    return match[1] if match else None


def _labelled(block: str, label: str) -> str | None:
    match = re.search(rf"^ +{label} +: (.*)$", block, re.MULTILINE)
    return match[1].strip() if match else None


def _mib(text: str | None) -> int | None:
    match = re.match(r"(\d+) MiB", text or "")
    return int(match[1]) if match else None


def _number(key: str) -> int:
    return int(re.sub(r"\D", "", key))
