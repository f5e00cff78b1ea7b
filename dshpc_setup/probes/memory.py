"""Memory as Slurm will count it; the same formula on the host and in the container."""

from __future__ import annotations

import re
from collections.abc import Sequence

from dshpc_setup.facts import Memory, State
from dshpc_setup.machine import Machine
from dshpc_setup.probes import cgroup, numa
from dshpc_setup.probes.trace import Found, Trace, kept, whole_number

_MEMINFO = "/proc/meminfo"
_STATUS = "/proc/self/status"
_SYSCTL = "sysctl hw.memsize"
_COMMAND_S = 3.0


def probe(machine: Machine, deadline_s: float) -> Found[Memory]:
    """The machine's memory and the least limit on this process."""
    look = Trace(machine, deadline_s)
    darwin = machine.system[0] == "Darwin"
    source = _SYSCTL if darwin else _MEMINFO
    total = _macos(look) if darwin else _linux(look)
    if isinstance(total, Memory):
        return look.found(total)
    limits = cgroup.Limits() if darwin else cgroup.probe(look)
    for path in limits.denied:
        look.saw("memory", "denied", path, "a limit that cannot be seen from here may be in it")
    nodes = () if darwin else numa.memory_nodes(look)
    whole = f"{total} MiB in all"
    if is_lxcfs(look.text("/proc/self/mountinfo") or ""):
        whole += ", the container's own: lxcfs shows no more"
    elif gpus := sum(node.mib for node in nodes if node.of_gpu):
        whole += f", {gpus} MiB of them the memory of GPUs (NUMA nodes without CPUs)"
        total = max(1, total - gpus)
    allowed = numa.parse_allowed(look.text(_STATUS) or "")
    fact = limit(
        total,
        int(limits.memory_bytes.value) if limits.memory_bytes else None,
        allowed_mib(nodes, allowed),
    )
    detail = f"limited by {fact.limited_by}" if fact.limited_by else None
    look.saw("memory", "present", source, detail)
    _conclude(look, fact, (source, whole), limits.memory_bytes)
    return look.found(fact)


def allowed_mib(nodes: Sequence[numa.MemoryNode], allowed: frozenset[int]) -> int | None:
    """The memory of the NUMA nodes that this process may use; None where no node is kept from it."""
    own = [node for node in nodes if not node.of_gpu]
    usable = [node for node in own if node.number in allowed]
    return sum(node.mib for node in usable) if 0 < len(usable) < len(own) else None


def _conclude(look: Trace, fact: Memory, said: tuple[str, str], found: cgroup.Limit | None) -> None:
    source, whole = said
    if fact.limited_by == "cpuset":
        look.concluded(
            "memory.limit_mib",
            f"{fact.limit_mib} of {fact.total_mib} MiB, limited by cpuset",
            (_STATUS, f"the NUMA nodes that this process may use hold {fact.limit_mib} MiB"),
            instead=[(f"{fact.total_mib} MiB ({source})", f"{whole}: more than {fact.limit_mib}")],
        )
        return
    if found is None:
        look.concluded("memory.limit_mib", f"{fact.limit_mib} MiB", (source, whole))
        return
    size = f"a limit of {int(found.value) >> 20} MiB"
    if fact.limited_by:
        look.concluded(
            "memory.limit_mib",
            f"{fact.limit_mib} of {fact.total_mib} MiB, limited by {fact.limited_by}",
            (found.source, size),
            instead=[(f"{fact.total_mib} MiB ({source})", f"{whole}: more than {fact.limit_mib}")],
        )
        return
    less = "" if int(found.value) >> 20 == fact.limit_mib else ", more than there is"
    look.concluded(
        "memory.limit_mib",
        f"{fact.limit_mib} MiB",
        (source, whole),
        (found.source, f"{size}{less}"),
    )


def _linux(look: Trace) -> int | Memory:
    """MiB in all, or the fact that they are not known."""
    read = look.machine.read(_MEMINFO)
    total = parse_total(read.text or "")
    if total:
        return total
    state: State = "error" if read.state == "present" else read.state
    why = "it does not say how much memory there is"
    if read.text is None:
        why = read.detail or "it is not there"
    elif read.text.strip():
        why = f"{why}: {kept(read.text)}"
    look.saw("memory", state, _MEMINFO, why)
    return Memory(state=state)


def _macos(look: Trace) -> int | Memory:
    result = look.machine.run(["sysctl", "-n", "hw.memsize"], deadline_s=look.tool_s(_COMMAND_S))
    size = whole_number(result.stdout) if result.ok else None
    if size is not None and size >> 20 > 0:
        return size >> 20
    state: State = "error" if result.state == "present" else result.state
    look.saw("memory", state, _SYSCTL, kept(result.text) or "no answer", result.code)
    return Memory(state=state)


def parse_total(meminfo: str) -> int | None:
    """MemTotal in MiB."""
    match = re.search(r"^MemTotal:\s*(\d{1,15})\s*kB", meminfo, re.MULTILINE | re.ASCII)
    return int(match[1]) // 1024 if match else None


def is_lxcfs(mountinfo: str) -> bool:
    """Whether lxcfs stands in for /proc/meminfo: its total is then a limit already."""
    return (
        re.search(r"^\S+ \S+ \S+ \S+ /proc/meminfo .* - fuse\.lxcfs ", mountinfo, re.MULTILINE)
        is not None
    )


def limit(total_mib: int, limit_bytes: int | None, allowed_mib: int | None = None) -> Memory:
    """The least of what there is, of the control groups' limit, and of the NUMA nodes that may be used."""
    least = Memory(total_mib, total_mib)
    if allowed_mib is not None and allowed_mib < total_mib:
        least = Memory(total_mib, max(1, allowed_mib), "cpuset")
    if limit_bytes is not None and limit_bytes >> 20 < (least.limit_mib or 0):
        least = Memory(total_mib, max(1, limit_bytes >> 20), "cgroup")
    return least
