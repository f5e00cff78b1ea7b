"""What Slurm does not keep of a job that has ended: its GPUs, and whether the kernel ended it for memory.

`container/task_exit.c` writes lines `job restarts gpus PLACES UUIDS` and `job restarts memory` into a file
of the job's user, in a folder that is that user's alone: what stands there is shown of that user's own
jobs, and nothing goes by it.
"""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass

from dshpc_setup.jobs.end_record import ENDED, SLOTS
from dshpc_setup.jobs.gpu_variables import PLACES, UUIDS

_MOST_BYTES = 1 << 16


@dataclass(frozen=True)
class Notes:
    """`places` in slurmd's list as it was then, and the UUIDs, where all of them are known."""

    places: tuple[str, ...] = ()
    uuids: tuple[str, ...] = ()
    by_memory: bool = False

    @property
    def variables(self) -> dict[str, str]:
        """As the launcher of `dshpc run` keeps a job's GPUs."""
        if not self.places:
            return {}
        known = {UUIDS: ",".join(self.uuids)} if self.uuids else {}
        return {PLACES: ",".join(self.places), **known}


def read(uid: int, job: int, folder: str = ENDED) -> Notes:
    """Of the last run of that job, by the number that it has of its own also as a task of an array; empty
    where there are none, or they are another user's."""
    path = f"{folder}/{uid}/{job % SLOTS}.job"
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return Notes()
    with open(handle, "rb") as file:
        found = os.fstat(handle)
        if not stat.S_ISREG(found.st_mode) or found.st_uid != uid:
            return Notes()
        text = file.read(_MOST_BYTES).decode("ascii", "replace")
    return parse(text, job)


def parse(text: str, job: int) -> Notes:
    """Lines of other jobs and of runs before are none."""
    rows = [line.split(" ") for line in text.split("\n")]
    mine = [
        (int(row[1]), row[2:])
        for row in rows
        if len(row) > 2 and row[0] == str(job) and row[1].isascii() and row[1].isdecimal()
    ]
    last = max((run for run, _ in mine), default=0)
    places: dict[str, None] = {}
    uuids: dict[str, None] = {}
    complete, by_memory = True, False
    for run, words in mine:
        if run == last and words[0] == "gpus" and len(words) == 3:
            places.update(dict.fromkeys(words[1].split(",")))
            complete = complete and words[2] != "-"
            uuids.update(dict.fromkeys(words[2].split(",")))
        elif run == last and words == ["memory"]:
            by_memory = True
    return Notes(tuple(places), tuple(uuids) if complete else (), by_memory)
