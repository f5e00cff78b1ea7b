"""How many processes the kernel has ended for want of memory in our own control group.

It counts each in the group that the process is charged to (memcontrol.c): of a job in the isolation tier
`enforced` one of the job's own, else the container's.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence

_VERSION_2, _VERSION_1 = "memory.events", "memory.oom_control"


def count(root: str = "") -> int:
    """The kernel's count by now; 0 where it says none. `root`: of the tree to read in."""
    groups = list(_groups(_lines(f"{root}/proc/self/cgroup")))
    mounts = list(_mounts(_lines(f"{root}/proc/self/mountinfo")))
    found = (_nearest(root, file, group, mounts) for file, group in groups)
    return sum(_kills(path) for path in found if path)


def _groups(lines: list[str]) -> Iterator[tuple[str, str]]:
    """(the file that counts, our group) in each version's tree; a machine may have both."""
    for line in lines:
        parts = line.split(":", 2)
        if len(parts) == 3 and parts[2].startswith("/"):
            if not parts[1]:
                yield _VERSION_2, parts[2]
            elif "memory" in parts[1].split(","):
                yield _VERSION_1, parts[2]


def _mounts(lines: list[str]) -> Iterator[tuple[str, str, str]]:
    """(the file that counts, the group at the mount's root, where it is mounted); see proc(5)."""
    for line in lines:
        own, _, of_the_tree = line.partition(" - ")
        words, (kind, options) = own.split(), _ends(of_the_tree.split())
        if len(words) < 5:
            continue
        if kind == "cgroup2":
            yield _VERSION_2, words[3], words[4]
        elif kind == "cgroup" and "memory" in options.split(","):
            yield _VERSION_1, words[3], words[4]


def _ends(words: list[str]) -> tuple[str, str]:
    return (words[0], words[-1]) if words else ("", "")


def _nearest(
    root: str, file: str, group: str, mounts: Sequence[tuple[str, str, str]]
) -> str | None:
    """That file of our group, or of the nearest above it that has one; None where none is mounted.

    A container without a namespace of its own for groups is told its path on the host, and has its own
    group mounted.
    """
    for name, top, at in mounts:
        if name != file:
            continue
        parts = _below(top.rstrip("/"), group)
        for length in range(len(parts), -1, -1):
            path = "/".join([f"{root}{at}", *parts[:length], file])
            if os.path.exists(path):
                return path
    return None


def _below(top: str, group: str) -> list[str]:
    """The folders from the mount's root to our group; none where it lies outside of what we see."""
    inside = group == top or group.startswith(f"{top}/")
    parts = group[len(top) :].split("/") if inside else []
    return [] if ".." in parts else [part for part in parts if part]


def _lines(path: str) -> list[str]:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read().splitlines()
    except OSError:
        return []


def _kills(path: str) -> int:
    found = [line.split() for line in _lines(path)]
    counts = [words[1] for words in found if len(words) == 2 and words[0] == "oom_kill"]
    return int(counts[0]) if counts and counts[0].isdecimal() else 0
