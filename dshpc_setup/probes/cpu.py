"""CPUs as Slurm will count them; the same formula on the host and in the container."""

from __future__ import annotations

import math
import re

from dshpc_setup.facts import Cpu
from dshpc_setup.machine import Machine
from dshpc_setup.probes import cgroup, ranges
from dshpc_setup.probes.look import Found, Look, whole_number

_SYS = "/sys/devices/system/cpu"
_COMMAND_S = 3.0

Shape = tuple[int, int | None, int | None]  # sockets, cores of each, threads of each


def probe(machine: Machine, deadline_s: float) -> Found[Cpu]:
    """Logical CPUs, their shape, and how many of them this process may use."""
    del deadline_s  # a few small files; a command of macOS has its own
    look = Look(machine)
    if machine.system[0] == "Darwin":
        return look.found(_macos(look))
    online, source = _online(look)
    if not online:
        look.saw("cpu", "error", source, "neither sysfs nor /proc/cpuinfo names a CPU")
        return look.found(Cpu(logical=1, usable=1))
    sockets, cores, threads = shape(look, online)
    allowed = ranges.parse(parse_allowed(look.text("/proc/self/status") or "")) & online
    usable, limited_by = limit(len(online), len(allowed), cgroup.probe(look).cpus)
    if limited_by == "affinity" and _is_cpuset(look, allowed):
        limited_by = "cpuset"
    look.saw("cpu", "present", source, f"limited by {limited_by}" if limited_by else None)
    fact = Cpu(len(online), sockets, cores, threads, usable, limited_by)
    return look.found(fact)


def limit(logical: int, allowed: int, quota: float | None) -> tuple[int, str | None]:
    """Usable CPUs and what limits them; `allowed` 0 means not known.

    A quota of 1.5 CPUs carries one whole CPU: a second job would run at half speed unasked.
    """
    usable, limited_by = logical, None
    if 0 < allowed < usable:
        usable, limited_by = allowed, "affinity"
    if quota is not None and max(1, math.floor(quota)) < usable:
        usable, limited_by = max(1, math.floor(quota)), "cgroup quota"
    return usable, limited_by


def shape(look: Look, online: frozenset[int]) -> Shape | tuple[None, None, None]:
    """Sockets, cores per socket, threads per core; the latter two only where all are alike.

    Each socket is looked at through its first and its last CPU: on a hybrid processor the last ones
    have one thread and the first ones two.
    """
    left, packages, kinds = set(online), 0, set()
    while left and packages < 256:
        first = min(left)
        package = _siblings(look, first, "package_cpus_list", "core_siblings_list") & online
        if first not in package:
            return None, None, None
        packages += 1
        left -= package
        for number in (first, max(package)):
            core = _siblings(look, number, "core_cpus_list", "thread_siblings_list") & online
            kinds.add((len(package), len(core)))
    if len(kinds) != 1:
        return packages, None, None
    size, threads = kinds.pop()
    if threads == 0 or size % threads:
        return packages, None, None
    return packages, size // threads, threads


def parse_allowed(status: str) -> str | None:
    """Cpus_allowed_list of /proc/self/status: cpuset and affinity in one."""
    match = re.search(r"^Cpus_allowed_list:\s*(\S+)", status, re.MULTILINE)
    return match[1] if match else None


def _siblings(look: Look, number: int, *names: str) -> frozenset[int]:
    for name in names:  # the kernel renamed them in 5.3 and keeps the old names
        text = look.text(f"{_SYS}/cpu{number}/topology/{name}")
        if text:
            return ranges.parse(text)
    return frozenset()


def _online(look: Look) -> tuple[frozenset[int], str]:
    online = ranges.parse(look.text(f"{_SYS}/online"))
    if online:
        return online, f"{_SYS}/online"
    return parse_cpuinfo(look.text("/proc/cpuinfo") or ""), "/proc/cpuinfo"


def parse_cpuinfo(text: str) -> frozenset[int]:
    """The numbers of its `processor : N` lines."""
    numbers = re.findall(r"^processor\s*:\s*(\d{1,5})\s*$", text, re.MULTILINE | re.ASCII)
    return frozenset(int(number) for number in numbers)


def _is_cpuset(look: Look, allowed: frozenset[int]) -> bool:
    """Whether the cpuset, rather than a taskset, accounts for the CPUs that are missing."""
    groups = cgroup.parse_membership(look.text("/proc/self/cgroup") or "")
    for path in (groups.get("cpuset", ""), groups.get("", ""), ""):
        base = path.rstrip("/")
        for name in ("cpuset.cpus.effective", "cpuset.effective_cpus", "cpuset.cpus"):
            for root in ("/sys/fs/cgroup/cpuset", "/sys/fs/cgroup"):
                numbers = ranges.parse(look.text(f"{root}{base}/{name}"))
                if numbers:
                    return len(numbers) == len(allowed)
    return False


def _macos(look: Look) -> Cpu:
    names = ("hw.logicalcpu", "hw.physicalcpu", "hw.packages")
    result = look.machine.run(["sysctl", "-n", *names], deadline_s=_COMMAND_S)
    numbers = [whole_number(line) for line in result.stdout.split()] if result.ok else []
    logical, physical, packages = (numbers + [None, None, None])[:3]
    if not logical or logical < 1:
        look.saw("cpu", "error", "sysctl", result.text or "no answer")
        return Cpu(logical=1, usable=1)
    look.saw("cpu", "present", "sysctl hw.logicalcpu")
    if not physical or not packages or physical % packages or logical % physical:
        return Cpu(logical=logical, usable=logical)
    return Cpu(logical, packages, physical // packages, logical // physical, logical)
