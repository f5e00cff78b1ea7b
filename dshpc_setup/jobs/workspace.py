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

import os
import re
import stat
import time

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
    os.chmod(folder, stat.S_IMODE(os.stat(work).st_mode))


def of_task(name: str, task: int | None) -> str:
    """The name of a file for one task of an array: `params.json` -> `params-7.json`."""
    if task is None:
        return name
    stem, ending = os.path.splitext(name)
    return f"{stem}-{task}{ending}"
