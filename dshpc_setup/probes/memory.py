"""Memory as Slurm will count it; the same formula on the host and in the container."""

from __future__ import annotations

import re

from dshpc_setup.facts import Memory
from dshpc_setup.machine import Machine
from dshpc_setup.probes import cgroup
from dshpc_setup.probes.look import Found, Look, whole_number

_COMMAND_S = 3.0


def probe(machine: Machine, deadline_s: float) -> Found[Memory]:
    """The machine's memory and the least limit on this process."""
    del deadline_s  # a few small files; a command of macOS has its own
    look = Look(machine)
    if machine.system[0] == "Darwin":
        source = "sysctl hw.memsize"
        result = machine.run(["sysctl", "-n", "hw.memsize"], deadline_s=_COMMAND_S)
        size = whole_number(result.stdout) if result.ok else None
        total = size >> 20 if size is not None and size > 0 else None
        limits = cgroup.Limits()
    else:
        source = "/proc/meminfo"
        total = parse_total(look.text(source) or "")
        limits = cgroup.probe(look)
    if not total:
        look.saw("memory", "error", source, "it does not say how much memory there is")
        return look.found(Memory(1024, 1024))
    fact = limit(total, limits.memory_bytes)
    detail = f"limited by {fact.limited_by}" if fact.limited_by else None
    look.saw("memory", "present", source, detail)
    return look.found(fact)


def parse_total(meminfo: str) -> int | None:
    """MemTotal in MiB."""
    match = re.search(r"^MemTotal:\s*(\d{1,15})\s*kB", meminfo, re.MULTILINE | re.ASCII)
    return int(match[1]) // 1024 if match else None


def limit(total_mib: int, limit_bytes: int | None) -> Memory:
    """The less of the two."""
    if limit_bytes is not None and limit_bytes >> 20 < total_mib:
        return Memory(total_mib, max(1, limit_bytes >> 20), "cgroup")
    return Memory(total_mib, total_mib)
