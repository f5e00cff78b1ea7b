"""A node that has not the work folder: the place for a workspace before a job, and nothing of it afterwards.

Slurm's prolog and epilog call these as root; what is made or removed in a user's folder is by that user.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import stat
import time
from collections.abc import Iterator

from dshpc_setup.files.storage import read_text, replace_text
from dshpc_setup.jobs import (
    carried,
    environments,
    images,
    removal,
    rights,
    safe_open,
    workspace,
    workspace_folders,
)
from dshpc_setup.jobs.workspace import JOBS, OWN, Workspace
from dshpc_setup.slurm.paths import Paths

WORK = "carried-work"  # in /run/dshpc: where workspaces come to
_NUMBER = re.compile(r"[1-9][0-9]{0,9}")
_TRIES = 20


def prepare(paths: Paths, work: str, node: str) -> int:
    """At a start, when no job runs here: how many workspaces an end without an epilog has left, and are gone
    now, as are environments and images of long ago. Afterwards jobs find where theirs come to."""
    removed = 0
    with contextlib.suppress(OSError), safe_open.opened(f"{work}/{JOBS}") as jobs:
        for name in os.listdir(jobs):
            if _NUMBER.fullmatch(name) or name == "0":
                removed += _swept(work, int(name), node)
    replace_text(f"{paths.run}/{WORK}", f"{work}\n{node}\n", sync=False)
    return removed


def _swept(work: str, uid: int, node: str) -> int:
    count = 0
    with contextlib.suppress(OSError), workspace.user_opened(work, uid) as user, _as(uid, user):
        for folder in (environments.FOLDER, images.FOLDER):
            with contextlib.suppress(OSError), safe_open.opened(folder, user) as copies:
                environments.clean(copies, time.time() - environments.UNUSED_S)
        for name in os.listdir(user):
            place = workspace.of_path(work, f"{workspace.of_user(work, uid)}/{name}")
            if place is not None and _came_to(place) == {node}:
                count += _removed(place, user)
    return count


def _removed(place: Workspace, user: int) -> bool:
    """Whether it is gone; see `end` for what stays."""
    with place.opened() as here, place.own() as own, safe_open.opened(carried.FOLDER, own) as marks:
        jobs = [name for name in os.listdir(marks) if name.isdecimal()]
        if not any(_was_carried(marks, job) for job in jobs) and _holds_something(here):
            for job in jobs:
                os.unlink(job, dir_fd=marks)
            return False
    removal.discard(place.name, user)
    return True


def _came_to(place: Workspace) -> set[str]:
    """The nodes to which it was carried, by the marks in it: the folder may be one that others see, too."""
    found = set()
    with (
        contextlib.suppress(OSError),
        place.own() as own,
        safe_open.opened(carried.FOLDER, own) as marks,
    ):
        for name in filter(str.isdecimal, os.listdir(marks)):
            with open(
                safe_open.file(name, marks, None), encoding="utf-8", errors="replace"
            ) as file:
                found.add(file.read(1024))
    return found


def begin(paths: Paths, job: str, uid: int, gid: int, folder: str) -> bool:
    """The job's folder, with a mark that says that its workspace is to come; whether it has one."""
    work, node = _told(paths)
    place = _place(work, uid, folder)
    if place is None or not _NUMBER.fullmatch(job):
        return False
    workspace_folders.prepare(place.work, uid, gid)
    with workspace.user_opened(place.work, uid) as user, _as(uid, user):
        for _ in range(_TRIES):
            with contextlib.suppress(FileNotFoundError):
                return _marked(place, user, job, node)
    return False


def _marked(place: Workspace, user: int, job: str, node: str) -> bool:
    """False where a folder of this name is here already that nobody has carried: the work folder is the
    controller's by now. FileNotFoundError where another job's end has just removed it."""
    try:
        made = safe_open.new_folder(place.name, user, workspace.folder_mode())
    except FileExistsError:
        made = safe_open.folder(place.name, user)
        is_new = False
    else:
        is_new = True
    try:
        if is_new:
            with contextlib.suppress(FileExistsError):
                os.close(safe_open.new_folder(OWN, made, 0o700))
        with safe_open.opened(OWN, made) as own:
            if is_new:
                with contextlib.suppress(FileExistsError):
                    os.mkdir(carried.FOLDER, 0o700, dir_fd=own)
            elif carried.FOLDER not in os.listdir(own):
                return False
            with safe_open.opened(carried.FOLDER, own) as marks:
                fcntl.flock(marks, fcntl.LOCK_EX)
                seen = os.stat(place.name, dir_fd=user, follow_symlinks=False)
                if not os.path.samestat(seen, os.fstat(made)):
                    raise FileNotFoundError(2, os.strerror(2), place.path)
                try:
                    safe_open.replace(job, node, marks)
                except OSError:  # a disk that is full takes an empty one: the job is told then
                    os.close(safe_open.new_file(job, marks))
    finally:
        os.close(made)
    return True


def end(paths: Paths, job: str, uid: int, folder: str) -> None:
    """Nothing of the job's is left; its workspace goes with the last job that is in it. What nobody has
    carried stays, as of any job of sbatch's: one that was told to run in the workspace of another."""
    place = _place(_told(paths)[0], uid, folder)
    if place is None or not _NUMBER.fullmatch(job):
        return
    with (
        contextlib.suppress(FileNotFoundError),
        workspace.user_opened(place.work, uid) as user,
        _as(uid, user),
        safe_open.opened(place.name, user) as here,
        safe_open.opened(OWN, here) as own,
        safe_open.opened(carried.FOLDER, own) as marks,
    ):
        fcntl.flock(marks, fcntl.LOCK_EX)
        is_lost = not _was_carried(marks, job) and _holds_something(here)
        for name in os.listdir(marks):
            if name == job or name.startswith(f"{job}-"):
                os.unlink(name, dir_fd=marks)
        if not is_lost and not any(name.isdecimal() for name in os.listdir(marks)):
            removal.discard(place.name, user)


def _was_carried(marks: int, job: str) -> bool:
    """Whether a launcher of ours, or who carries, has been there."""
    return any(name.startswith(f"{job}-") for name in os.listdir(marks))


def _holds_something(here: int) -> bool:
    """Beside what we make: the log of a job that never began is empty."""
    for name in os.listdir(here):
        seen = os.stat(name, dir_fd=here, follow_symlinks=False)
        if name != OWN and not (stat.S_ISREG(seen.st_mode) and not seen.st_size):
            return True
    return False


def _told(paths: Paths) -> tuple[str, str]:
    """The folder that workspaces come to, and this node's name; "" where they come to none."""
    text = read_text(f"{paths.run}/{WORK}")
    work, node = (text or "\n\n").splitlines()[:2]
    return work, node


def _place(work: str, uid: int, folder: str) -> Workspace | None:
    """Only a folder of that user's, where workspaces come to."""
    place = workspace.of_path(work, folder) if work else None
    return place if place is not None and place.uid == uid else None


@contextlib.contextmanager
def _as(uid: int, user: int) -> Iterator[None]:
    """With the rights of the folder's owner."""
    gid = os.fstat(user).st_gid
    with rights.of_user(None if rights.is_one_id() else (uid, gid)):
        yield
