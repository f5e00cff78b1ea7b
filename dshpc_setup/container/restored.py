"""After an older copy of the queue was taken: what has ended since then does not run again.

The copy knows a job as waiting or running whose end stands in the log of ended jobs, or was written down
by its script's end (ends.py). Its batch script ends at once with the code that it had, so that what
depends on it goes on; what has no such script, was cancelled, or is a task of an array is cancelled.
"""

from __future__ import annotations

import contextlib
import json
import os

from dshpc_setup.container import ends
from dshpc_setup.documents import foreign
from dshpc_setup.files.storage import read_text, replace_text
from dshpc_setup.machine import Machine
from dshpc_setup.slurm import completion_log
from dshpc_setup.slurm.client import Slurm
from dshpc_setup.slurm.completion_log import Ended
from dshpc_setup.slurm.paths import Paths

_MARK = "/var/lib/dshpc/state/restored.json"
_ASK_S = 20.0
_AT_ONCE = 500  # numbers in one call
_COLUMNS = "JobID State BatchFlag RestartCnt UserID ArrayJobID ArrayTaskID"
_UNKNOWN_CODE = 1
# Of a job that is queued again the log has a line, too
_FINAL = frozenset(
    "COMPLETED FAILED CANCELLED TIMEOUT OUT_OF_MEMORY DEADLINE NODE_FAIL BOOT_FAIL".split()
)


def remember(paths: Paths, written: int) -> None:
    """That the queue will be that of `written` (seconds of the epoch)."""
    replace_text(paths.at(_MARK), json.dumps({"written": written}) + "\n")


def conclude(machine: Machine, paths: Paths) -> tuple[str, ...]:
    """Ids of the jobs that do not run again. Before slurmd registers, as then they could begin; nothing
    where no copy was taken."""
    since = _written(paths)
    if since is None:
        return ()
    slurm = Slurm(machine)
    jobs = slurm.rows(_COLUMNS, each_task=True, deadline_s=_ASK_S).value
    if jobs is None:
        return ()
    over = _ended_since(paths, since)
    concluded: list[str] = []
    cancelled: list[str] = []
    for job in jobs:
        name = job.id if job.task is None else f"{job.number}_{job.task}"
        known = over.get(name)
        code = _code(known) if known is not None else None
        # Tasks that wait have the number of their array, which one of them may have had as its own
        is_one = job.state != "PENDING" or job.task is None or job.own != job.number
        if known is None:
            code = ends.code_of(paths, job.uid or 0, job.own, job.restarts) if is_one else None
            if code is None:
                continue
        if code is None or not job.batch or not is_one:
            if job.state in ("PENDING", "RUNNING", "SUSPENDED"):
                cancelled.append(name)
        elif job.state == "PENDING":
            ends.conclude(paths, job.own, job.restarts, code)
            concluded.append(job.id)
        elif job.state == "RUNNING":  # it is queued again first
            ends.conclude(paths, job.own, job.restarts + 1, code)
            concluded.append(job.id)
    for place in range(0, len(cancelled), _AT_ONCE):
        slurm.cancel(*cancelled[place : place + _AT_ONCE], deadline_s=_ASK_S)
    with contextlib.suppress(FileNotFoundError):
        os.unlink(paths.at(_MARK))
    return (*concluded, *cancelled)


def _written(paths: Paths) -> int | None:
    try:
        value = foreign.value(read_text(paths.at(_MARK)) or "")
        return int(value["written"])
    except (ValueError, KeyError, TypeError):
        return None


def _ended_since(paths: Paths, since: int) -> dict[str, Ended]:
    found: dict[str, Ended] = {}
    for each in completion_log.newest_first(paths.at(completion_log.LOG)):
        if each.ended is not None and each.ended >= since:
            found.setdefault(each.id, each)
    return {name: each for name, each in found.items() if each.state in _FINAL}


def _code(job: Ended) -> int | None:
    """What its script ends with now; None for one that is to be cancelled."""
    if job.state == "CANCELLED":
        return None
    if job.state == "COMPLETED":
        return 0
    return job.exit_code or _UNKNOWN_CODE
