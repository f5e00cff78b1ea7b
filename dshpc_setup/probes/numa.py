"""The NUMA nodes that hold memory, and which of them are a GPU's own.

On POWER9 with NVLink and on Grace Hopper and Grace Blackwell the driver brings each GPU's memory online as
a NUMA node without CPUs (Linux: Documentation/admin-guide/mm/numaperf.rst on memory-only nodes). The
kernel adds it to MemTotal, although a job that fills it takes it from the GPU. On other machines a node
without CPUs is memory of the machine: a CXL expander, or HBM in flat mode.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from dshpc_setup.probes import ranges
from dshpc_setup.probes.trace import Trace

NODES = "/sys/devices/system/node"
_COHERENT = ("aarch64", "ppc64le")  # where NVIDIA's GPUs are joined by a coherent NVLink
_NVIDIA = "/proc/driver/nvidia/gpus"


@dataclass(frozen=True)
class MemoryNode:
    """`mib` is its MemTotal, rounded down; `of_gpu`: it is the memory of a GPU."""

    number: int
    mib: int
    of_gpu: bool


def memory_nodes(look: Trace) -> tuple[MemoryNode, ...]:
    """In the order of their numbers; () where the kernel does not tell, or one of them cannot be read."""
    listed = look.text(f"{NODES}/has_memory") or look.text(f"{NODES}/online")
    gpus = look.machine.system[2] in _COHERENT and bool(look.machine.listdir(_NVIDIA))
    nodes: list[MemoryNode] = []
    for number in sorted(ranges.parse(listed)):
        size = parse_total(look.text(f"{NODES}/node{number}/meminfo") or "")
        cpus = look.text(f"{NODES}/node{number}/cpulist")
        if size is None or cpus is None:
            return ()
        nodes.append(MemoryNode(number, size, gpus and not ranges.parse(cpus)))
    return tuple(nodes)


def parse_total(meminfo: str) -> int | None:
    """MemTotal in MiB of a node's own meminfo: "Node 0 MemTotal:       16315604 kB"."""
    match = re.search(
        r"^Node\s+\d{1,6}\s+MemTotal:\s*(\d{1,15})\s*kB", meminfo, re.MULTILINE | re.ASCII
    )
    return int(match[1]) // 1024 if match else None


def parse_allowed(status: str) -> frozenset[int]:
    """Mems_allowed_list of /proc/self/status, the effective `cpuset.mems`; empty where it is not told."""
    return ranges.parse(ranges.in_status(status, "Mems_allowed_list"))
