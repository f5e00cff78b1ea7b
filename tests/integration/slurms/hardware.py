"""Made-up hardware in a room: the device nodes of a plan's GPUs, and a processor."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Mapping

from dshpc_setup.plan import ClusterPlan
from tests.integration.bench.room import Room

_MAJOR = 240  # one of those for local use: nobody has a driver for it


def add_nodes(room: Room, plan: ClusterPlan) -> None:
    """The device files that the plan names, each a node with a number of its own."""
    links = {link.path: link.target for link in plan.device_links}
    named = [path for line in plan.gres for path in line.files]
    for number, path in enumerate(dict.fromkeys(links.get(path, path) for path in named)):
        node = room.path(path)
        node.parent.mkdir(parents=True, exist_ok=True)
        os.mknod(node, stat.S_IFCHR | 0o666, os.makedev(_MAJOR, number))
    for path, target in links.items():
        link = room.path(path)
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(target)


def hybrid(*, fast: int, slow: int) -> Mapping[str, str]:
    """What Linux tells of a processor of Intel's with fast cores, of two threads, and slow ones of one."""
    cores: list[tuple[int, ...]] = [(2 * core, 2 * core + 1) for core in range(fast)]
    cores += [(2 * fast + core,) for core in range(slow)]
    every = range(2 * fast + slow)
    folder = "sys/devices/system/cpu"
    files = {
        **{f"{folder}/{name}": f"0-{every[-1]}\n" for name in ("online", "possible", "present")},
        "sys/devices/cpu_core/cpus": f"0-{2 * fast - 1}\n",
        "sys/devices/cpu_atom/cpus": f"{2 * fast}-{every[-1]}\n",
        "proc/cpuinfo": "".join(f"processor\t: {cpu}\n\n" for cpu in every),
        "proc/meminfo": "MemTotal:       32505856 kB\n",
    }
    for number, threads in enumerate(cores):
        for cpu in threads:
            ids = {"physical_package_id": "0", "die_id": "0", "core_id": str(number)}
            masks = {"core_cpus": threads, "package_cpus": every, "die_cpus": every}
            told = {**ids, **{name: _mask(cpus) for name, cpus in masks.items()}}
            files |= {
                f"{folder}/cpu{cpu}/topology/{name}": f"{text}\n" for name, text in told.items()
            }
    return files


def _mask(cpus: Iterable[int]) -> str:
    return f"{sum(1 << cpu for cpu in cpus):08x}"
