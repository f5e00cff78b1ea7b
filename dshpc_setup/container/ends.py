"""Batch scripts that have run to their end, written down beside Slurm before slurmctld can know of it.

A container that is killed takes slurmstepd with it, which was about to tell slurmctld that a job has
ended: slurmctld takes it for running, and it would run again. So slurmstepd (container/task_exit.c) and the
launcher of `dshpc run` write a line `job restarts code` as the script ends (code "?" where a signal ended
it), in a folder that is the job's user's alone. The next start concludes such a job: it is queued once more
with its number, and the task prolog puts `exit code` in the place of its script.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
from collections.abc import Collection

from dshpc_setup.files.storage import cannot_write, read_text, replace_text
from dshpc_setup.jobs.end_record import ENDED, NOT_KNOWN, SLOTS
from dshpc_setup.slurm.paths import Paths

CONCLUDED = "/var/lib/dshpc/state/concluded"  # a file for each job: "restarts code"
_LINE = re.compile(rb"([0-9]{1,10}) ([0-9]{1,9}) ([0-9]{1,3}|\?)\n")


def make_folder(paths: Paths, uid: int, gid: int) -> None:
    """Where that user's jobs write; DshpcError where it cannot be made."""
    path = paths.at(f"{ENDED}/{uid}")
    try:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with contextlib.suppress(FileExistsError):
            os.mkdir(path, 0o700)
        # The folder above is root's: nobody has put a link here
        found = os.lstat(path)
        if (found.st_uid, found.st_gid) != (uid, gid):
            os.chown(path, uid, gid, follow_symlinks=False)
    except OSError as error:
        raise cannot_write(path, error) from None


def code_of(paths: Paths, uid: int, job: int, restarts: int) -> int | None:
    """How that run of the job's script has ended; None where it has not, or it was never written."""
    path = paths.at(f"{ENDED}/{uid}/{job % SLOTS}")
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        found = os.fstat(handle)
        if not stat.S_ISREG(found.st_mode) or found.st_uid != uid:
            return None
        match = _LINE.fullmatch(os.read(handle, 64))
    finally:
        os.close(handle)
    if match is None or (int(match[1]), int(match[2])) != (job, restarts):
        return None
    return NOT_KNOWN if match[3] == b"?" else int(match[3]) & 255


def conclude(paths: Paths, job: int, restarts: int, code: int) -> None:
    """The run of that job after so many restarts is none: its script ends with that code at once."""
    folder = paths.at(CONCLUDED)
    try:
        os.makedirs(folder, exist_ok=True)
    except OSError as error:
        raise cannot_write(folder, error) from None
    replace_text(f"{folder}/{job}", f"{restarts} {code}\n")


def concluded_code(paths: Paths, job: int, restarts: int) -> int | None:
    """What the run of that job after so many restarts was concluded with; None where it was not."""
    words = (read_text(paths.at(f"{CONCLUDED}/{job}")) or "").split()
    if len(words) != 2 or not all(map(str.isdecimal, words)) or int(words[0]) != restarts:
        return None
    return int(words[1])


def forget(paths: Paths, left: Collection[int]) -> None:
    """Remove what was concluded of jobs that are not in the queue any more."""
    folder = paths.at(CONCLUDED)
    with contextlib.suppress(OSError):
        for name in os.listdir(folder):
            if not name.isdecimal() or int(name) not in left:
                os.unlink(f"{folder}/{name}")
