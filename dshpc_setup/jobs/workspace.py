"""A job's own folder in the work folder: what lies where, and under which names.

<work>/jobs/                          root's, or the cluster's owner's: nobody else moves what is in it
    <uid>/                            what one user's jobs have: that user's, who alone writes there
        <name>-<time>-<random>/       JOB_WORKSPACE, where the job runs and leaves its results
            output.log                what it printed (of an array: output-<task>.log)
            task-<task>/              of an array: the JOB_WORKSPACE of each task
            inputs/                   copies of inputs from outside the work folder
            .job/request.json         what was asked for (dshpc.job-request/1)
            .job/job.json             the job's number, its sbatch call (dshpc.job/1)
            .job/params.json          PARAMS_FILE (of an array: params-<task>.json)
            .job/result.json          how it ended (dshpc.job-result/1; of an array: result-<task>.json)
            .job/carried.json         what of it is back from nodes that have not the work folder
        .workflows/                   what each workflow of the user's has run last

A workspace is 0700, or 0750 with the setting `workspace_access: group`; `.job` is always 0700.
"""

from __future__ import annotations

import contextlib
import os
import re
import time

from dshpc_setup.jobs import safe_open

TYPE_CHECKING = False  # importing typing costs a job's start
if TYPE_CHECKING:
    from collections.abc import Iterator

JOBS = "jobs"
OWN = ".job"
REQUEST, JOB = "request.json", "job.json"
PARAMS, RESULT, LOG = "params.json", "result.json", "output.log"
CARRIED = "carried.json"
JOB_SCHEMA, RESULT_SCHEMA = "dshpc.job/1", "dshpc.job-result/1"
LAUNCHER = "/usr/local/lib/dshpc/job"  # what the batch script becomes
ACCESS = "DSHPC_WORKSPACE_ACCESS"  # the setting, in the container's environment
_NUMBER = re.compile(r"0|[1-9][0-9]{0,9}", re.ASCII)


class Workspace:
    """One workspace, by its place; whether it is there, and whose, is seen as it is opened."""

    def __init__(self, work: str, uid: int, name: str) -> None:
        self.work, self.uid, self.name = work, uid, name

    @property
    def path(self) -> str:
        return f"{of_user(self.work, self.uid)}/{self.name}"

    @contextlib.contextmanager
    def opened(self) -> Iterator[int]:
        """The folder, open; OSError where it is not there, or not that user's."""
        handle = _of_owner(self.work, (JOBS, str(self.uid), self.name), self.uid)
        try:
            yield handle
        finally:
            os.close(handle)

    @contextlib.contextmanager
    def own(self) -> Iterator[int]:
        """Its folder `.job`, open; as `opened`."""
        handle = _of_owner(self.work, (JOBS, str(self.uid), self.name, OWN), self.uid)
        try:
            yield handle
        finally:
            os.close(handle)


def of_path(work: str, path: str) -> Workspace | None:
    """The workspace that a path names; None for one that names none."""
    top = f"{work.rstrip('/')}/{JOBS}/"
    uid, _, name = path[len(top) :].partition("/") if path.startswith(top) else ("", "", "")
    known = _NUMBER.fullmatch(uid) and name and not name.startswith(".") and "/" not in name
    return Workspace(work.rstrip("/"), int(uid), name) if known else None


def of_user(work: str, uid: int) -> str:
    """The folder of a user's workspaces."""
    return f"{work.rstrip('/')}/{JOBS}/{uid}"


@contextlib.contextmanager
def user_opened(work: str, uid: int) -> Iterator[int]:
    """That folder, open; OSError where it is not there, or not that user's."""
    handle = _of_owner(work, (JOBS, str(uid)), uid)
    try:
        yield handle
    finally:
        os.close(handle)


def _of_owner(work: str, parts: tuple[str, ...], uid: int) -> int:
    """The folder at `parts`; all of them behind `jobs` are that user's."""
    at = safe_open.walked(work, parts[:1])
    for part in parts[1:]:
        before = at
        try:
            at = safe_open.folder(part, before)
            try:
                safe_open.check_owner(os.fstat(at), uid, at, part)
            except BaseException:
                os.close(at)
                raise
        finally:
            os.close(before)
    return at


def folder_mode() -> int:
    """Of a workspace, as the cluster's setting says."""
    return 0o750 if os.environ.get(ACCESS) == "group" else 0o700


def plain(name: str) -> str:
    """What may stand in a folder's and in a job's name as it is."""
    return re.sub(r"[^A-Za-z0-9._-]", "_", name).strip(".")[:40] or "job"


def new_name(name: str) -> str:
    """A folder's name with a random ending, sorted by time: "train-20260131-235959-1a2b3c"."""
    return f"{plain(name)}-{time.strftime('%Y%m%d-%H%M%S')}-{os.urandom(3).hex()}"


def of_task(name: str, task: int | None) -> str:
    """The name of a file for one task of an array: `params.json` -> `params-7.json`."""
    if task is None:
        return name
    stem, ending = os.path.splitext(name)
    return f"{stem}-{task}{ending}"
