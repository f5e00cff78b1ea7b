"""What the processes of jobs have in memory now, by job: a look at /proc, no program started."""

from __future__ import annotations

import os
import re

_STEP = re.compile(r"slurmstepd: \[([0-9]{1,10})\.", re.ASCII)
_PAGE_KIB = os.sysconf("SC_PAGE_SIZE") // 1024


def by_job(proc: str = "/proc") -> dict[int, int]:
    """Own number -> MiB of all processes below its slurmstepds, each of which is root's."""
    parents: dict[int, int] = {}
    kib: dict[int, int] = {}
    steps: dict[int, int] = {}
    for name in os.listdir(proc):
        if not name.isdecimal():
            continue
        pid = int(name)
        before, _, after = _read(f"{proc}/{name}/stat").rpartition(")")
        fields = after.split()
        if len(fields) < 22:
            continue
        parents[pid], kib[pid] = int(fields[1]), int(fields[21]) * _PAGE_KIB
        if before.endswith("(slurmstepd") and _owner(f"{proc}/{name}") == os.geteuid():
            match = _STEP.match(_read(f"{proc}/{name}/cmdline"))
            if match is not None:
                steps[pid] = int(match[1])
    found: dict[int, int] = {}
    for pid in kib:
        if pid not in steps and (job := _job_of(pid, parents, steps)) is not None:
            found[job] = found.get(job, 0) + kib[pid]
    return {job: -(-total // 1024) for job, total in found.items()}


def _job_of(pid: int, parents: dict[int, int], steps: dict[int, int]) -> int | None:
    seen = set()
    while pid not in seen and pid in parents:
        seen.add(pid)
        pid = parents[pid]
        if pid in steps:
            return steps[pid]
    return None


def _owner(path: str) -> int:
    try:
        return os.stat(path).st_uid
    except OSError:
        return -1


def _read(path: str) -> str:
    """ "" of a process that has ended."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""
