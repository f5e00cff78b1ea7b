"""A job's own folder in the work folder: what lies where, and under which names.

<work>/jobs/<name>-<time>-<random>/   JOB_WORKSPACE, where the job runs and leaves its results
    output.log                        what it printed (of an array: output-<task>.log)
    task-<task>/                      of an array: the JOB_WORKSPACE of each task
    inputs/                           copies of inputs from outside the work folder
    .dshpc/request.json               what was asked for (dshpc.job-request/1)
    .dshpc/job.json                   the job's number, its sbatch call (dshpc.job/1)
    .dshpc/params.json                PARAMS_FILE (of an array: params-<task>.json)
    .dshpc/result.json                how it ended (dshpc.job-result/1; of an array: result-<task>.json)
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import stat
import time

TYPE_CHECKING = False  # importing typing costs a job's start
if TYPE_CHECKING:
    from dshpc_setup.errors import DshpcError

JOBS = "jobs"
OWN = ".dshpc"
REQUEST, JOB = "request.json", "job.json"
PARAMS, RESULT, LOG = "params.json", "result.json", "output.log"
JOB_SCHEMA, RESULT_SCHEMA = "dshpc.job/1", "dshpc.job-result/1"
LAUNCHER = "/usr/local/lib/dshpc/job"  # what the batch script becomes


def plain(name: str) -> str:
    """What may stand in a folder's and in a job's name as it is."""
    return re.sub(r"[^A-Za-z0-9._-]", "_", name).strip(".")[:40] or "job"


def new_name(name: str) -> str:
    """A folder's name with a random ending, sorted by time: "train-20260131-235959-1a2b3c"."""
    return f"{plain(name)}-{time.strftime('%Y%m%d-%H%M%S')}-{os.urandom(3).hex()}"


def make_shared(folder: str, work: str) -> None:
    """A folder in `work` that may be there: who may make folders in the work folder may do so in it."""
    if os.path.isdir(folder):
        return
    try:
        os.mkdir(folder)
    except FileExistsError:
        if not os.path.isdir(folder):  # else another submission has made it just now
            raise
        return
    with contextlib.suppress(PermissionError):  # a file system that has modes and owners of its own
        os.chmod(folder, stat.S_IMODE(os.stat(work).st_mode))


def not_made(folder: str, work: str, error: OSError) -> DshpcError:
    """Why a workspace cannot be made, in words."""
    from dshpc_setup.errors import DshpcError

    jobs = os.path.dirname(folder)
    why = "A job's workspace lies in the work folder and belongs to who submits it."
    todo = room_for_writing(error, work)
    refused = isinstance(error, PermissionError)
    if refused and os.getuid() == 0:
        why += " Its file system refuses root (as NFS does with root_squash)."
        todo = f"Submit as a user who may write in {work}, without sudo."
    elif refused and os.path.isdir(jobs) and os.access(work, os.W_OK) > os.access(jobs, os.W_OK):
        why += f" This user may write in {work}, and not in {jobs}."
        todo = f"Let its owner give it the same rights: chmod --reference={work} {jobs}"
    return DshpcError(
        f"The workspace {folder} cannot be made: {error.strerror or error}.", why, (todo,)
    )


def is_ours(folder: str) -> bool:
    """Whether it is a real folder of this user's; OSError where there is none.

    There are file systems that give all files to one user, or root's to nobody: NFS with root_squash
    or all_squash, WSL's /mnt/c, what Docker Desktop shares. What we make beside it is that one's, too.
    """
    found = os.lstat(folder)
    if not stat.S_ISDIR(found.st_mode):
        return False
    return found.st_uid == os.getuid() or found.st_uid == given_owner(os.path.dirname(folder))


def given_owner(folder: str) -> int | None:
    """Whom the file system gives a file that we make there; None where we cannot."""
    path = f"{folder}/.dshpc-{os.urandom(6).hex()}"
    try:
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        try:
            return os.lstat(path).st_uid
        finally:
            os.unlink(path)
    except OSError:
        return None


def room_for_writing(error: OSError, work: str) -> str:
    """What a user has to do for a workspace or a copy that could not be written in the work folder."""
    jobs = f"{work.rstrip('/')}/{JOBS}"
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return f"Make room in {work}: workspaces of old jobs, which nobody removes, lie in {jobs}."
    place = jobs if os.path.isdir(jobs) else work
    return f"Make it possible for this user to write in {place}; for all users: chmod 1777 {place}"


def of_task(name: str, task: int | None) -> str:
    """The name of a file for one task of an array: `params.json` -> `params-7.json`."""
    if task is None:
        return name
    stem, ending = os.path.splitext(name)
    return f"{stem}-{task}{ending}"
