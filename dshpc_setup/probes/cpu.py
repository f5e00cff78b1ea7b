"""CPUs as Slurm will count them; the same formula on the host and in the container."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from dshpc_setup.facts import Cpu, State
from dshpc_setup.machine import Machine
from dshpc_setup.probes import cgroup, ranges
from dshpc_setup.probes.trace import Found, Trace, kept, whole_number

_SYS = "/sys/devices/system/cpu"
_CPUINFO = "/proc/cpuinfo"
_STATUS = "/proc/self/status"
_COMMAND_S = 3.0
_MOST_SOCKETS = 256

Shape = tuple[int | None, int | None, int | None]  # sockets, cores of each, threads of each
Members = tuple[frozenset[int], ...]  # the logical CPUs of each socket
_UNKNOWN: Shape = (None, None, None)


@dataclass(frozen=True)
class Candidate:
    """A number that the usable CPUs may not exceed: `name` is what Cpu.limited_by says."""

    count: int
    name: str | None
    source: str
    says: str


_QUOTA = "cgroup quota"  # a value of dshpc.facts/1


def probe(machine: Machine, deadline_s: float) -> Found[Cpu]:
    """Logical CPUs, their shape, and how many of them this process may use."""
    look = Trace(machine, deadline_s)
    if machine.system[0] == "Darwin":
        return look.found(_macos(look))
    online, source, failure = _online(look)
    if not online:
        state, detail = failure
        look.saw("cpu", state, source, detail)
        return look.found(Cpu(state=state))
    (sockets, cores, threads), members = shape(look, online)
    chosen = _limited(look, online, source)
    look.saw("cpu", "present", source, f"limited by {chosen.name}" if chosen.name else None)
    fact = Cpu(
        len(online),
        sockets,
        cores,
        threads,
        chosen.count,
        chosen.name,
        socket_cpus=tuple(map(ranges.text, members)),
    )
    return look.found(fact)


def _limited(look: Trace, online: frozenset[int], source: str) -> Candidate:
    """The least of what the kernel has and of every limit on this process, with its reasons."""
    limits = cgroup.probe(look)
    candidates = [Candidate(len(online), None, source, _cpus(len(online), "online"))]
    if limits.cpuset is not None and limits.cpuset_source:
        count = len(limits.cpuset & online)
        says = _cpus(count, "in our cpuset")
        candidates.append(Candidate(count, "cpuset", limits.cpuset_source, says))
    status = look.machine.read(_STATUS)
    allowed = ranges.parse(parse_allowed(status.text or "")) & online
    says = _cpus(len(allowed), "that this process may run on")
    candidates.append(Candidate(len(allowed), "affinity", _STATUS, says))
    if limits.cpus is not None:
        says = f"a quota of {limits.cpus.value:g} CPUs"
        count = max(1, math.floor(limits.cpus.value))
        candidates.append(Candidate(count, _QUOTA, limits.cpus.source, says))
    for path in limits.denied:
        look.saw("cpu", "denied", path, "a limit that cannot be seen from here may be in it")
    if status.state != "present":
        look.saw("cpu", status.state, _STATUS, status.detail or "the affinity is not known")
    chosen = least(candidates)
    look.concluded(
        "cpu.usable",
        f"{chosen.count} of {len(online)} CPUs"
        + (f", limited by {chosen.name}" if chosen.name else ""),
        *((item.source, item.says) for item in candidates if item.count == chosen.count),
        instead=[
            (f"{item.count} ({item.source})", f"{item.says}: more than {chosen.count}")
            for item in candidates
            if item.count > chosen.count
        ],
    )
    return chosen


def least(candidates: Sequence[Candidate]) -> Candidate:
    """The one with the fewest CPUs, the first of equals; 0 stands for "not known".

    A quota of 1.5 CPUs carries one whole CPU: a second job would run at half speed unasked.
    """
    return min((item for item in candidates if item.count), key=lambda item: item.count)


def _cpus(count: int, which: str) -> str:
    return f"{count} CPU {which}" if count == 1 else f"{count} CPUs {which}"


def shape(look: Trace, online: frozenset[int]) -> tuple[Shape, Members]:
    """Sockets, cores per socket, threads per core; the latter two only where all are alike.

    With the CPUs of each socket, in the order of their lowest; () where they are not known.

    Each socket is looked at through its first and its last CPU: on a hybrid processor the last ones
    have one thread and the first ones two. Where CPUs are offline, through all of them.
    """
    if look.text(f"{_SYS}/cpu{min(online)}/topology/physical_package_id") == "-1":
        return _UNKNOWN, ()  # the firmware does not tell: each CPU would be a socket of its own
    every = bool(ranges.parse(look.text(f"{_SYS}/present")) - online)
    left, packages, kinds = set(online), list[frozenset[int]](), set()
    while left and len(packages) < _MOST_SOCKETS:
        first = min(left)
        package = _siblings(look, first, "package_cpus_list", "core_siblings_list") & online
        if first not in package:
            return _shape_by_ids(look, online)
        packages.append(package & left)
        left -= package
        for number in sorted(package) if every else (first, max(package)):
            core = _siblings(look, number, "core_cpus_list", "thread_siblings_list") & online
            kinds.add((len(package), len(core)))
    if left:
        return _UNKNOWN, ()
    if len(kinds) != 1:
        return (len(packages), None, None), tuple(packages)
    size, threads = kinds.pop()
    if threads == 0 or size % threads:
        return (len(packages), None, None), tuple(packages)
    return (len(packages), size // threads, threads), tuple(packages)


def _shape_by_ids(look: Trace, online: frozenset[int]) -> tuple[Shape, Members]:
    """The same from the CPUs' own numbers, where no list of siblings is there."""
    cores: dict[tuple[int | None, ...], int] = {}
    members: dict[int | None, set[int]] = {}
    for number in sorted(online):
        folder = f"{_SYS}/cpu{number}/topology"
        ids = [look.number(f"{folder}/{name}") for name in ("physical_package_id", "core_id")]
        if None in ids or ids[0] == -1:
            return _UNKNOWN, ()
        key = (ids[0], look.number(f"{folder}/die_id"), ids[1])
        cores[key] = cores.get(key, 0) + 1
        members.setdefault(ids[0], set()).add(number)
    sizes = Counter(key[0] for key in cores)
    if len(sizes) > _MOST_SOCKETS:
        return _UNKNOWN, ()
    each = tuple(map(frozenset, members.values()))
    if len(set(sizes.values())) != 1 or len(set(cores.values())) != 1:
        return (len(sizes), None, None), each
    return (len(sizes), next(iter(sizes.values())), next(iter(cores.values()))), each


def parse_allowed(status: str) -> str | None:
    """Cpus_allowed_list of /proc/self/status: cpuset and affinity in one."""
    return ranges.in_status(status, "Cpus_allowed_list")


def _siblings(look: Trace, number: int, *names: str) -> frozenset[int]:
    for name in names:  # the kernel renamed them in 5.3 and keeps the old names
        text = look.text(f"{_SYS}/cpu{number}/topology/{name}")
        if text:
            return ranges.parse(text)
    return frozenset()


def _online(look: Trace) -> tuple[frozenset[int], str, tuple[State, str]]:
    """The CPUs that the kernel runs on, who says so, and else why nobody does."""
    sysfs = look.machine.read(f"{_SYS}/online")
    online = ranges.parse(sysfs.text)
    if online:
        return online, f"{_SYS}/online", ("present", "")
    cpuinfo = look.machine.read(_CPUINFO)
    listed = parse_cpuinfo(cpuinfo.text or "")
    # Where the list of those online is missing, each CPU may still say that it is not
    online = frozenset(it for it in listed if look.text(f"{_SYS}/cpu{it}/online") != "0")
    if online:
        return online, _CPUINFO, ("present", "")
    if "denied" in (sysfs.state, cpuinfo.state):
        path = _CPUINFO if cpuinfo.state == "denied" else f"{_SYS}/online"
        return online, path, ("denied", f"{path} may not be read")
    if sysfs.state == cpuinfo.state == "absent":  # a tree of something else, under --root
        return online, _CPUINFO, ("absent", f"there is neither {_SYS}/online nor {_CPUINFO}")
    garbage = kept(sysfs.text or cpuinfo.text or sysfs.detail or cpuinfo.detail or "")
    detail = f"neither {_SYS}/online nor {_CPUINFO} names a CPU; what is there: {garbage}"
    return online, _CPUINFO, ("error", detail)


def parse_cpuinfo(text: str) -> frozenset[int]:
    """The numbers of its `processor : N` lines."""
    numbers = re.findall(r"^processor\s*:\s*(\d{1,5})\s*$", text, re.MULTILINE | re.ASCII)
    return frozenset(int(number) for number in numbers)


def _macos(look: Trace) -> Cpu:
    names = ("hw.logicalcpu", "hw.physicalcpu", "hw.packages")
    result = look.machine.run(["sysctl", "-n", *names], deadline_s=look.tool_s(_COMMAND_S))
    found = parse_sysctl(result.stdout) if result.ok else None
    if found is None:
        state: State = "error" if result.state == "present" else result.state
        look.saw("cpu", state, "sysctl", kept(result.text) or "no answer", result.code)
        return Cpu(state=state)
    logical, (packages, cores, threads) = found
    look.saw("cpu", "present", "sysctl hw.logicalcpu")
    look.concluded(
        "cpu.usable",
        f"{logical} of {logical} CPUs",
        ("sysctl hw.logicalcpu", _cpus(logical, "in all")),
    )
    return Cpu(logical, packages, cores, threads, logical)


def parse_sysctl(text: str) -> tuple[int, Shape] | None:
    """hw.logicalcpu, hw.physicalcpu and hw.packages, each on a line; the shape where it fits."""
    numbers = [whole_number(line) for line in text.split()[:3]]
    logical, physical, packages = (numbers + [None, None, None])[:3]
    if not logical or logical < 1:
        return None
    if not physical or not packages or min(physical, packages) < 1:
        return logical, (None, None, None)
    if physical % packages or logical % physical:
        return logical, (None, None, None)
    return logical, (packages, physical // packages, logical // physical)
