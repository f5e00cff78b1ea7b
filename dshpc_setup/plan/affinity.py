"""Which cores each GPU is near, and which GPUs are joined to each other."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from dshpc_setup.facts import Cpu, GpuDevice
from dshpc_setup.plan.model import GresLine
from dshpc_setup.plan.node import Shape
from dshpc_setup.probes import ranges


def placed(
    gres: Sequence[GresLine], devices: Sequence[GpuDevice], cpu: Cpu, shape: Shape | None
) -> tuple[GresLine, ...]:
    """The lines with `cores` and `links` where they are known and tell one GPU from another."""
    owners = _owners(gres, devices)
    cores = _cores(owners, cpu, shape)
    links = _links(gres, owners)
    return tuple(
        replace(line, cores=near, links=joined)
        for line, near, joined in zip(gres, cores, links, strict=True)
    )


def _owners(gres: Sequence[GresLine], devices: Sequence[GpuDevice]) -> list[GpuDevice]:
    """The device of each line."""
    by_index = {device.index: device for device in devices}
    return [by_index[line.index] for line in gres]


def _sockets(cpu: Cpu) -> list[frozenset[int]]:
    return [ranges.parse(text) for text in cpu.socket_cpus]


def _cores(owners: Sequence[GpuDevice], cpu: Cpu, shape: Shape | None) -> list[str | None]:
    """`Cores=` of each line: of all or of none, as Slurm wants it.

    Slurm hands out cores near a GPU by whole sockets, and refuses a node with a line for a part of one:
    so a part (where a socket is divided into several NUMA nodes) stands for the socket. Nothing is said
    unless each socket has as many GPUs as any other: where more are near one, Slurm refuses jobs on all
    GPUs for which the node has room.
    """
    unsaid: list[str | None] = [None] * len(owners)
    sockets = _sockets(cpu)
    if shape is None or shape[0] < 2 or len(sockets) != shape[0]:
        return unsaid
    near = [_nearest(device, sockets) for device in owners]
    counts = Counter(near)
    if None in counts or len(counts) != len(sockets) or len(set(counts.values())) != 1:
        return unsaid
    return [_range(number * shape[1], shape[1]) for number in near if number is not None]


def _nearest(device: GpuDevice, sockets: Sequence[frozenset[int]]) -> int | None:
    """The one socket that it is near to; None where there are several, or it is not known."""
    near = ranges.parse(device.cores)
    touched = [number for number, members in enumerate(sockets) if members & near]
    return touched[0] if len(touched) == 1 else None


def _range(first: int, count: int) -> str:
    return str(first) if count == 1 else f"{first}-{first + count - 1}"


def _links(gres: Sequence[GresLine], owners: Sequence[GpuDevice]) -> list[tuple[int, ...]]:
    """`Links=` of each line, in the order of the lines, where not all of them are joined alike.

    slurmd sorts lines by type, so that the order is known for one type alone; parts of cards have no
    connections of their own.
    """
    none: list[tuple[int, ...]] = [()] * len(owners)
    addresses = [device.pci_bus_id for device in owners]
    cut = any(device.mig_mode == "enabled" or device.partition_of for device in owners)
    if cut or len({line.slurm_type for line in gres}) != 1:
        return none
    if None in addresses or len(set(addresses)) != len(addresses):
        return none
    told = [[_connections(device, address) for address in addresses] for device in owners]
    size = range(len(owners))
    both = [[max(told[one][two], told[two][one]) for two in size] for one in size]
    if len({both[one][two] for one in size for two in size if one != two}) < 2:
        return none
    return [tuple(-1 if one == two else both[one][two] for two in size) for one in size]


def _connections(device: GpuDevice, address: str | None) -> int:
    return sum(
        link.count
        for link in device.links
        if link.peer == address and link.peer_kind in ("gpu", None)
    )
