"""Jobs that ended lately at a TaskProlog which failed: slurmstepd says so in the job's own output alone."""

from __future__ import annotations

import os
import stat

from dshpc_setup import slurm_releases
from dshpc_setup.files.storage import read_text
from dshpc_setup.machine import Machine
from dshpc_setup.slurm import seen, slurm_conf
from dshpc_setup.slurm.paths import Paths

_MOST_JOBS = 5  # the latest of those that Slurm still knows
_END = 4096


def failed(machine: Machine, paths: Paths, deadline_s: float) -> tuple[str, ...]:
    """ "17 (exit code 3)" each; nothing is asked where slurm.conf names none."""
    try:
        text = read_text(f"{paths.etc_slurm}/slurm.conf") or ""
    except OSError:
        return ()
    path = slurm_conf.last(text, "TaskProlog")
    if path is None or path.startswith("/usr/local/lib/dshpc/"):
        return ()
    asked = machine.run(seen.failed_argv(_MOST_JOBS), deadline_s=deadline_s, cwd="/")
    return tuple(
        f"{each.job} (exit code {each.code})"
        for each in seen.parse_failed(asked.stdout)
        if each.code in _codes(_end(paths.at(each.errors)))
    )


def _codes(text: str) -> set[str]:
    """With which a TaskProlog ended: the last words of a task that was not begun, and its own exit code."""
    failed = map(slurm_releases.says("task_prolog_failed").search, text.splitlines())
    return {found[1] for found in failed if found}


def _end(path: str) -> str:
    """The end of a user's file, whatever it is: nothing of a pipe, a device or a link."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    except (OSError, ValueError):
        return ""
    try:
        found = os.fstat(file)
        if not stat.S_ISREG(found.st_mode):
            return ""
        return os.pread(file, _END, max(0, found.st_size - _END)).decode(errors="replace")
    except OSError:
        return ""
    finally:
        os.close(file)
