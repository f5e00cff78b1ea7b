"""Limits of control groups, versions 1 and 2: the least of our own group's and of all above it.

Inside a container /proc/self/cgroup may name a path of the host while the tree is mounted at our
own group; walking up to the root of what is mounted reads both the same way.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from dshpc_setup.probes import ranges
from dshpc_setup.probes.trace import Trace, whole_number

_ROOT = "/sys/fs/cgroup"
_UNLIMITED = 1 << 60  # version 1 says "no limit" by a number close to 2^63
_MOST_LEVELS = 32


@dataclass(frozen=True)
class Limit:
    """A limit that is in force, and the file that says so."""

    value: float
    source: str


@dataclass(frozen=True)
class Limits:
    """The limits on this process; None where there is none."""

    cpus: Limit | None = None  # quota / period
    memory_bytes: Limit | None = None
    cpuset: frozenset[int] | None = None
    cpuset_source: str | None = None
    denied: tuple[str, ...] = ()  # files that are there and may not be read: a limit we cannot see


@dataclass(frozen=True)
class Group:
    """Where a controller's own group lies: `joined` is how /proc/self/cgroup lists it."""

    path: str
    joined: str


_AT_THE_ROOT = {name: Group("/", name) for name in ("", "cpu", "cpuset", "memory")}


def probe(look: Trace) -> Limits:
    """Reads every level of our groups, in both versions; hybrid machines have both."""
    files = _Files(look)
    told = files.text("/proc/self/cgroup")
    # Who keeps it from us has put us at the root of what is mounted.
    groups = _AT_THE_ROOT if told is None else parse_groups(told)
    quotas = [*_quotas_v2(files, groups), *_quotas_v1(files, groups)]
    sizes = [*_sizes_v2(files, groups), *_sizes_v1(files, groups)]
    cpuset, source = _cpuset(files, groups)
    return Limits(
        min(quotas, key=lambda limit: limit.value, default=None),
        min(sizes, key=lambda limit: limit.value, default=None),
        cpuset,
        source,
        tuple(files.denied),
    )


class _Files:
    """Reads, and remembers what it may not read."""

    def __init__(self, look: Trace) -> None:
        self._machine = look.machine
        self.denied: list[str] = []

    def exists(self, path: str) -> bool:
        return self._machine.exists(path)

    def text(self, path: str) -> str | None:
        read = self._machine.read(path)
        if read.state == "denied":
            self.denied.append(path)
        return read.text.strip() if read.text is not None else None


def _quotas_v2(files: _Files, groups: dict[str, Group]) -> Iterator[Limit]:
    for folder in _upwards(_ROOT, groups[""].path) if "" in groups else ():
        quota = parse_cpu_max(files.text(f"{folder}/cpu.max"))
        if quota is not None:
            yield Limit(quota, f"{folder}/cpu.max")


def _quotas_v1(files: _Files, groups: dict[str, Group]) -> Iterator[Limit]:
    for folder in _folders_v1(files, groups, "cpu"):
        quota = whole_number(files.text(f"{folder}/cpu.cfs_quota_us"))
        if quota is None or quota <= 0:
            continue
        cpus = share(quota, whole_number(files.text(f"{folder}/cpu.cfs_period_us")))
        if cpus is not None:
            yield Limit(cpus, f"{folder}/cpu.cfs_quota_us")


def _sizes_v2(files: _Files, groups: dict[str, Group]) -> Iterator[Limit]:
    for folder in _upwards(_ROOT, groups[""].path) if "" in groups else ():
        size = parse_size(files.text(f"{folder}/memory.max"))
        if size is not None:
            yield Limit(size, f"{folder}/memory.max")


def _sizes_v1(files: _Files, groups: dict[str, Group]) -> Iterator[Limit]:
    stat: str | None = None
    for folder in _folders_v1(files, groups, "memory"):
        size = parse_size(files.text(f"{folder}/memory.limit_in_bytes"))
        if size is not None:
            yield Limit(size, f"{folder}/memory.limit_in_bytes")
        if stat is not None:
            continue
        # Counts the groups above those that we can see as well; our own group's says it for all.
        stat = files.text(f"{folder}/memory.stat")
        least = parse_hierarchical(stat or "")
        if least is not None:
            yield Limit(least, f"{folder}/memory.stat")


def _cpuset(files: _Files, groups: dict[str, Group]) -> tuple[frozenset[int] | None, str | None]:
    """The CPUs of the nearest group that names some."""
    folders = list(_folders_v1(files, groups, "cpuset"))
    if "" in groups:
        folders += _upwards(_ROOT, groups[""].path)
    for folder in folders:
        for name in ("cpuset.cpus.effective", "cpuset.effective_cpus", "cpuset.cpus"):
            numbers = ranges.parse(files.text(f"{folder}/{name}"))
            if numbers:
                return numbers, f"{folder}/{name}"
    return None, None


def _folders_v1(files: _Files, groups: dict[str, Group], controller: str) -> Iterator[str]:
    """Our group and those above it, under the name that the controller is mounted by."""
    group = groups.get(controller)
    if group is None:
        return
    names = [name for name in (controller, group.joined) if files.exists(f"{_ROOT}/{name}")]
    root = f"{_ROOT}/{names[0] if names else controller}"
    yield from _upwards(root, group.path)


def parse_groups(text: str) -> dict[str, Group]:
    """Controller -> group, of /proc/self/cgroup; "" is version 2's one hierarchy."""
    found: dict[str, Group] = {}
    for line in text.splitlines():
        parts = line.split(":", 2)
        if len(parts) == 3 and parts[2].startswith("/"):
            for controller in parts[1].split(","):
                found.setdefault(controller, Group(parts[2], parts[1]))
    return found


def parse_cpu_max(text: str | None) -> float | None:
    """`150000 100000` is 1.5 CPUs; `max 100000` no limit."""
    words = (text or "").split()
    return share(whole_number(words[0]), whole_number(words[1])) if len(words) == 2 else None


def share(quota_us: int | None, period_us: int | None) -> float | None:
    """CPUs' worth of time; None where there is no quota (-1) or no sense in it."""
    if quota_us is None or period_us is None or quota_us <= 0 or period_us <= 0:
        return None
    return quota_us / period_us


def parse_size(text: str | None) -> int | None:
    """Bytes of a limit file; None for `max` and for version 1's huge number."""
    size = whole_number(text)
    return size if size is not None and 0 < size < _UNLIMITED else None


def parse_hierarchical(stat: str) -> int | None:
    """Version 1's memory.stat: the least limit of the group and of all above it."""
    match = re.search(r"^hierarchical_memory_limit (\d{1,20})$", stat, re.MULTILINE | re.ASCII)
    return parse_size(match[1]) if match else None


def _upwards(root: str, path: str) -> list[str]:
    """The folder of `path` under `root`, each one above it, and `root` itself.

    ".." in it (our group lies outside the namespace's view) leaves only the root.
    """
    parts = [part for part in path.split("/") if part and part != ".."]
    if ".." in path.split("/"):
        parts = []
    return [
        "/".join([root, *parts[:length]]) for length in range(min(len(parts), _MOST_LEVELS), -1, -1)
    ]
