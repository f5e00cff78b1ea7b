"""Which GPUs a job holds: Slurm's places in slurmd's list, as `dshpc detect` counts the cards."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from dshpc_setup import gpu_vendors
from dshpc_setup.documents import foreign
from dshpc_setup.jobs import offer as offer_module
from dshpc_setup.jobs.gpu_variables import PLACES, TABLE, UUIDS
from dshpc_setup.jobs.offer import OfferedGpu
from dshpc_setup.probes import ranges

PLACES_FILE = "gpu-places"  # beside the offer of each node of several
_NODE = re.compile(r"[A-Za-z0-9][\w.-]*", re.ASCII)
_NO_UUID = ("", "all", "none", "void")


@dataclass(frozen=True)
class Gpu:
    """A GPU that a job holds or held; `index` is None for one that is no longer there."""

    index: int | None
    uuid: str | None
    name: str | None
    memory_mib: int | None
    type: str | None = None  # Slurm's
    node: str | None = None

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @property
    def text(self) -> str:
        """ "GPU 0 (NVIDIA H100, 81559 MiB, GPU-...)"."""
        memory = None if self.memory_mib is None else f"{self.memory_mib} MiB"
        told = ", ".join(part for part in (self.name, memory, self.uuid) if part)
        if self.index is None:
            of_kind = f"a GPU of type {self.type}" if self.type else "a GPU that is no longer there"
            return self.uuid or of_kind
        return f"GPU {self.index}" + (f" ({told})" if told else "")


def texts(gpus: Sequence[Gpu]) -> tuple[str, ...]:
    """Each one's text, with its node where they are on several: each has a GPU 0."""
    several = len({gpu.node for gpu in gpus}) > 1
    return tuple(f"{gpu.text} on {gpu.node}" if several and gpu.node else gpu.text for gpu in gpus)


@dataclass(frozen=True)
class Places:
    """`rows`: place in slurmd's list -> vendor, number among its vendor's, UUID."""

    rows: Mapping[int, tuple[str, int | None, str | None]]
    gpus: tuple[OfferedGpu, ...] = ()
    node: str | None = None
    nodes: str = offer_module.NODES  # where the other nodes of a cluster have left the same
    _read: dict[str, Places] = field(init=False, default_factory=dict, compare=False, repr=False)

    def on(self, node: str | None) -> Places:
        """Those of another node of the cluster: none where it has left nothing, which says nothing of its
        GPUs. These where it is not another."""
        if not node or node == self.node:
            return self
        if not _NODE.fullmatch(node):
            return Places({}, (), node, self.nodes)
        if node not in self._read:
            folder = f"{self.nodes}/{node}"
            there = known(f"{folder}/{PLACES_FILE}", f"{folder}/offer.json")
            left_nothing = Places({}, (), node, self.nodes)
            self._read[node] = left_nothing if there.node is None else there
        return self._read[node]

    def of_job(self, held: Sequence[str], nodes: Sequence[str]) -> tuple[Gpu, ...]:
        """Of squeue's "gpu:h100:2(IDX:0-1)" for each node of a job."""
        if len(nodes) != len(held):
            nodes = [*nodes[:1], *([""] * len(held))]
        return tuple(
            gpu
            for text, node in zip(held, nodes, strict=False)
            for gpu in self.on(node).of_gres(text)
        )

    def of_gres(self, text: str) -> tuple[Gpu, ...]:
        """Of squeue's "gpu:h100:2(IDX:0-1)"; those of which it has a share, too."""
        shared = {place for places, _ in shares(text) for place in places}
        types = _types(text)
        return tuple(
            self._at(place, types.get(place)) for place in sorted(shared.union(parse_held(text)))
        )

    def of_variables(self, seen: Mapping[str, Any]) -> tuple[Gpu, ...]:
        """Of a job that has ended, by the variables that it had."""
        names = (UUIDS, *gpu_vendors.uuid_variables())
        words = [word for name in names for word in str(seen.get(name) or "").split(",")]
        uuids = [word for word in words if not (word.isdecimal() or word in _NO_UUID)]
        if uuids:
            return tuple(self._named(uuid) for uuid in uuids)
        held = str(seen.get(PLACES) or "")
        return self.of_gres(f"gpu:(IDX:{held})") if held else ()

    def _at(self, place: int, kind: str | None) -> Gpu:
        """`kind`: Slurm's type, for one of which no more is known."""
        vendor, number, uuid = self.rows.get(place, ("", None, None))
        if uuid is not None and any(gpu.uuid == uuid for gpu in self.gpus):
            return self._named(uuid)
        own = sorted((gpu for gpu in self.gpus if gpu.vendor == vendor), key=lambda gpu: gpu.index)
        if number is not None and number < len(own):
            return self._gpu(own[number])
        if not self.rows and place < len(self.gpus):  # all of one kind, in the order of the cards
            return self._gpu(self.gpus[place])
        is_other = bool(self.rows) or (self.node is not None and not self.gpus)
        return Gpu(None if is_other else place, uuid, None, None, kind, self.node)

    def _named(self, uuid: str) -> Gpu:
        found = next((gpu for gpu in self.gpus if gpu.uuid == uuid), None)
        return Gpu(None, uuid, None, None) if found is None else self._gpu(found)

    def _gpu(self, offered: OfferedGpu) -> Gpu:
        return Gpu(
            offered.index, offered.uuid, offered.name, offered.memory_mib,
            offered.slurm_type, self.node,
        )  # fmt: skip


def has_several_nodes(nodes: str = offer_module.NODES) -> bool:
    """Whether more than one has left what it offers: then it counts on which a job is."""
    try:
        return sum(map(bool, map(_NODE.fullmatch, os.listdir(nodes)))) > 1
    except OSError:
        return False


def known(table: str = TABLE, offer: str = offer_module.FILE) -> Places:
    """As the container's last start has left it."""
    gpus: tuple[OfferedGpu, ...] = ()
    node: str | None = None
    try:
        with open(offer, encoding="utf-8") as file:
            offered = offer_module.from_json(foreign.of_file(file))
        gpus, node = offered.gpus, offered.node
    except (OSError, ValueError):
        pass
    try:
        with open(table, encoding="utf-8") as file:
            lines = file.read().splitlines()
    except OSError:
        lines = []
    return Places(parse_table(lines), gpus, node)


def parse_table(
    lines: Sequence[str],
) -> dict[int, tuple[str, int | None, str | None]]:
    """Lines "gpu PLACE VENDOR NUMBER UUID" (container/gpu_places.py)."""
    found = {}
    for line in lines:
        words = line.split()
        if len(words) == 5 and words[0] == "gpu" and words[1].isdecimal():
            _, place, vendor, number, uuid = words
            found[int(place)] = (
                vendor,
                int(number) if number.isdecimal() else None,
                uuid if uuid != "-" else None,
            )
    return found


def parse_held(text: str) -> tuple[int, ...]:
    """ "gpu:h100:2(IDX:0,2-3),gpu:t4:0(IDX:)" -> (0, 2, 3)."""
    return tuple(sorted(_types(text)))


def _types(text: str) -> dict[int, str | None]:
    """ "gpu:h100:2(IDX:0,2),gpu:1(IDX:3)" -> {0: "h100", 2: "h100", 3: None}."""
    held = r"(?:^|,)gpu:(?:\(null\)|([^,:()]+)(?=:))?[^,()]*\(IDX:([0-9,-]*)\)"
    return {
        place: match[1] for match in re.finditer(held, text) for place in ranges.parse(match[2])
    }


def shares(text: str) -> Iterator[tuple[tuple[int, ...], int]]:
    """Of "shard:3(3/4,0/4)", which says of each GPU how many of its shares a job has: the places of those
    that it has some of, and of how many GPUs is spoken."""
    for match in re.finditer(r"(?:^|,)(?:shard|mps):(?:[^,:()]+:)?[0-9]{1,6}\(([0-9/,]+)\)", text):
        counts = match[1].split(",")
        yield tuple(at for at, each in enumerate(counts) if not each.startswith("0/")), len(counts)
