"""Jobs that ended lately at a TaskProlog which failed: slurmstepd says so in the job's own output alone."""

from __future__ import annotations

import os
import re
import stat

from dshpc_setup.files.storage import read_text
from dshpc_setup.machine import Machine
from dshpc_setup.slurm import slurm_conf
from dshpc_setup.slurm.places import Places

# Of slurmstepd's, as the last words of a task that was not begun (exec_task in
# src/slurmd/slurmstepd/task.c, 24.11); the task ends with that code
FAILED = re.compile(r"error: TaskProlog failed status=(\d{1,3})\b")
_MOST_JOBS = 5  # the latest of those that Slurm still knows
_END = 4096
_JOB = re.compile(r"^JobId=(\d+)\s.*\sExitCode=(\d+):0\s.*\sStdErr=(/.*?)\sStdIn=")
_ASK = rf"""for job in $(squeue -h -a -t FAILED -S i -o %A | tail -n {_MOST_JOBS}); do
scontrol -o show job "$job" 2>/dev/null; done"""


def failed(machine: Machine, places: Places, deadline_s: float) -> tuple[str, ...]:
    """ "17 (exit code 3)" each; nothing is asked where slurm.conf names none."""
    try:
        text = read_text(f"{places.etc_slurm}/slurm.conf") or ""
    except OSError:
        return ()
    path = slurm_conf.last(text, "TaskProlog")
    if path is None or path.startswith("/usr/local/lib/dshpc/"):
        return ()
    asked = machine.run(["sh", "-c", _ASK], deadline_s=deadline_s, cwd="/")
    jobs = (found for line in asked.stdout.splitlines() if (found := _JOB.match(line)))
    return tuple(
        f"{job} (exit code {code})"
        for job, code, log in (found.groups() for found in jobs)
        if code in FAILED.findall(_end(places.at(log)))
    )


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
