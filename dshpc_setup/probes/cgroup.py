"""Limits of control groups, versions 1 and 2: the least of our own group's and of all above it.

Inside a container /proc/self/cgroup may name a path of the host while the tree is mounted at our
own group; walking up to the root of what is mounted reads both the same way.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

from dshpc_setup.probes.look import Look, whole_number

_T = TypeVar("_T", int, float)
_ROOT = "/sys/fs/cgroup"
_UNLIMITED = 1 << 60  # version 1 says "no limit" by a number close to 2^63


@dataclass(frozen=True)
class Limits:
    cpus: float | None = None  # quota / period
    memory_bytes: int | None = None


def probe(look: Look) -> Limits:
    """The limits on this process; None where there is none."""
    groups = parse_membership(look.text("/proc/self/cgroup") or "")
    quotas: list[float] = []
    sizes: list[int] = []
    if "" in groups and look.machine.exists(f"{_ROOT}/cgroup.controllers"):
        for folder in _upwards(_ROOT, groups[""]):
            quotas += _known(parse_cpu_max(look.text(f"{folder}/cpu.max")))
            sizes += _known(parse_size(look.text(f"{folder}/memory.max")))
    for folder in _upwards(f"{_ROOT}/cpu", groups.get("cpu", "/")) if "cpu" in groups else ():
        quota = whole_number(look.text(f"{folder}/cpu.cfs_quota_us"))
        quotas += _known(share(quota, whole_number(look.text(f"{folder}/cpu.cfs_period_us"))))
    if "memory" in groups:
        for folder in _upwards(f"{_ROOT}/memory", groups["memory"]):
            sizes += _known(parse_size(look.text(f"{folder}/memory.limit_in_bytes")))
    return Limits(min(quotas, default=None), min(sizes, default=None))


def parse_membership(text: str) -> dict[str, str]:
    """Controller -> path, of /proc/self/cgroup; "" is version 2's one hierarchy."""
    found: dict[str, str] = {}
    for line in text.splitlines():
        parts = line.split(":", 2)
        if len(parts) == 3 and parts[2].startswith("/"):
            for controller in parts[1].split(","):
                found.setdefault(controller, parts[2])
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


def _known(value: _T | None) -> list[_T]:
    return [] if value is None else [value]


def _upwards(root: str, path: str) -> list[str]:
    """The folder of `path` under `root`, each one above it, and `root` itself.

    ".." in it (our group lies outside the namespace's view) leaves only the root.
    """
    parts = [part for part in path.split("/") if part and part != ".."]
    if ".." in path.split("/"):
        parts = []
    return ["/".join([root, *parts[:length]]) for length in range(min(len(parts), 32), -1, -1)]
