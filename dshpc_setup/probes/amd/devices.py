"""AMD's layers put together into devices: KFD's nodes, DRM's attributes, what the tools told."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from dshpc_setup.facts import GpuDevice, GpuHealth, Link
from dshpc_setup.probes import drm
from dshpc_setup.probes.amd import kfd
from dshpc_setup.probes.amd import names as amd_names
from dshpc_setup.probes.amd import partitions as amd_partitions
from dshpc_setup.probes.amd.attributes import Layers
from dshpc_setup.probes.amd.card import ToolCard, uuids
from dshpc_setup.probes.trace import Trace
from dshpc_setup.problems import RAS_BROKEN

_DEVICE = "/dev/kfd"
_APU_TARGETS = frozenset(
    "gfx700 gfx801 gfx902 gfx909 gfx90c gfx1013 gfx1033 gfx1035 gfx1036 gfx1037 gfx1103 gfx1150 "
    "gfx1151 gfx1152 gfx1153".split()
)
_COMPUTE_APUS = frozenset((0x74A0,))  # MI300A: gfx942, like the cards


@dataclass(frozen=True)
class _Card:
    """What is known of a node beside the node itself."""

    address: str | None
    partition: bool
    uuid: str | None
    links: tuple[Link, ...]


def build(nodes: Sequence[kfd.Node], layers: Layers) -> tuple[GpuDevice, ...]:
    """One device a node, as KFD and DRM have it; what is not known there is None."""
    cards = [amd_partitions.card_of(node, nodes, layers) for node in nodes]
    shares = Counter(cards)
    parts = amd_partitions.cut(nodes, layers)
    links = _links(nodes, cards)
    names = uuids(
        [
            node.unique_id or (layers.of(address).unique_id if shares[address] == 1 else None)
            for node, address in zip(nodes, cards, strict=True)
        ]
    )
    return tuple(
        _device(
            index,
            node,
            _Card(address, address in parts, names[index], links.get(address or "", ())),
            layers,
        )
        for index, (node, address) in enumerate(zip(nodes, cards, strict=True))
    )


def _device(index: int, node: kfd.Node, beside: _Card, layers: Layers) -> GpuDevice:
    address, partition = beside.address, beside.partition
    card, told = layers.cards.get(address or ""), layers.of(address)
    name = amd_names.by_id(node.device_id, told.product)
    target = node.target or told.target
    size = node.memory_bytes or node.properties.get("local_mem_size", 0)
    if not size and not partition:
        size = told.vram_bytes or 0
    return GpuDevice(
        index=index,
        vendor="amd",
        name=name,
        uuid=beside.uuid,
        pci_bus_id=address,
        memory_mib=size >> 20 or None,
        compute=target,
        slurm_type=amd_names.slurm_type(name, target),
        device_files=(f"/dev/dri/renderD{node.minor}",) if node.minor else (),
        numa_node=card.numa_node if card else None,
        cores=card.cores if card else None,
        partition_of=address if partition else None,
        minor=node.minor,
        driver=card.driver if card and card.driver else "amdgpu",
        unified_memory=unified(node.device_id, target),
        links=beside.links,
        partition_mode=told.mode,
        health=GpuHealth(ras=told.ras) if told.ras else None,
        problems=(RAS_BROKEN,) if address in layers.broken else (),
    )


def unified(device_id: int | None, target: str | None) -> bool | None:
    """Whether CPU and GPU share one memory."""
    if device_id in _COMPUTE_APUS:
        return True
    return target in _APU_TARGETS if target else None


def _links(nodes: Sequence[kfd.Node], cards: Sequence[str | None]) -> dict[str, tuple[Link, ...]]:
    """xGMI links by the card's address: to other cards, and to the CPU it hangs on."""
    where = {node.number: card for node, card in zip(nodes, cards, strict=True)}
    found: dict[str, tuple[Link, ...]] = {}
    for node, card in zip(nodes, cards, strict=True):
        if card is None or not node.links:
            continue
        most: dict[str | None, int] = {}
        for link in node.links:
            peer = where.get(link.to)
            if peer != card:
                most[peer] = max(link.count, most.get(peer, 0))
        found[card] = tuple(
            Link("xgmi", count, peer, "gpu" if peer else "cpu")
            for peer, count in sorted(most.items(), key=lambda item: (item[0] is None, item[0]))
        )
    return found


def carve_out_mib(device: GpuDevice, node: kfd.Node, layers: Layers) -> int | None:
    """What memory decides whether a GPU is a mere display adapter.

    Of one inside a processor KFD may tell the memory that it borrows; a big one works with that.
    """
    told = layers.of(device.pci_bus_id).vram_bytes
    small = node.properties.get("simd_count", 0) < 64
    if device.unified_memory and small and told:
        return told >> 20
    return device.memory_mib


def of_tools(cards: Iterable[ToolCard], look: Trace) -> tuple[GpuDevice, ...]:
    """Devices of a tool's list, for a machine where the kernel's own trees have none."""
    listed = tuple(_with_cards_address(cards))
    names = uuids([card.unique_id for card in listed])
    shares = Counter(card.address for card in listed if card.address)
    found = []
    for index, card in enumerate(listed):
        name = name_of(look, card)
        shared = card.address is not None and shares[card.address] > 1
        render = None
        if card.address and not shared:
            render = drm.of_device(look, card.address).render
        here = render is not None and look.machine.is_device(f"/dev/dri/{render}")
        found.append(
            GpuDevice(
                index=index,
                vendor="amd",
                name=name,
                uuid=names[index] or (card.uuid if not card.unique_id else None),
                pci_bus_id=card.address,
                memory_mib=(card.memory_bytes or 0) >> 20 or None,
                driver_version=card.driver_version,
                compute=card.target,
                slurm_type=amd_names.slurm_type(_chip(look, card) or name, card.target),
                device_files=(f"/dev/dri/{render}",) if here else (),
                numa_node=card.numa_node,
                partition_of=card.address if shared else None,
                minor=drm.minor_of(render) if here else None,
                driver="amdgpu",
                unified_memory=unified(card.device_id, card.target),
                partition_mode=card.partition_mode,
            )
        )
    return tuple(found)


def _with_cards_address(cards: Iterable[ToolCard]) -> Iterator[ToolCard]:
    """Partitions share their card's unique id, and have their number for a function."""
    listed = tuple(cards)
    counted = Counter((card.unique_id, (card.address or "")[:-1]) for card in listed)
    for card in listed:
        several = counted[card.unique_id, (card.address or "")[:-1]] > 1
        if several and card.unique_id and card.address:
            yield replace(card, address=f"{card.address[:-1]}0")
        else:
            yield card


def _chip(look: Trace, card: ToolCard) -> str | None:
    """What the card is by its ids, as KFD and DRM have it, in whatever words a tool calls it."""
    board = amd_names.by_id(card.device_id, card.name)
    return board or amd_names.by_table(look, card.device_id, card.revision)


def name_of(look: Trace, card: ToolCard) -> str | None:
    """The tool's own word, else by its PCI ids."""
    return (
        card.name
        or amd_names.by_id(card.device_id)
        or amd_names.by_table(look, card.device_id, card.revision)
        or amd_names.by_series(card.device_id)
    )


def filled(device: GpuDevice, name: str | None, memory_bytes: int | None = None) -> GpuDevice:
    """With what another layer knows of it."""
    if device.name is None and name:
        kind = amd_names.slurm_type(name, device.compute)
        device = replace(device, name=name, slurm_type=kind)
    if device.memory_mib is None and memory_bytes and device.partition_of is None:
        device = replace(device, memory_mib=memory_bytes >> 20 or None)
    return device


def group_ids(look: Trace, device: GpuDevice) -> tuple[int, ...]:
    """Numeric groups of the files that a job opens: a name may be another group in the image."""
    found = (look.machine.group_of(path) for path in (_DEVICE, *device.device_files))
    return tuple(sorted({group for group in found if group is not None}))
