"""The workspace that a job's launcher stands in, open: what is looked at and what is used are the same.

Each job's start imports this, so imports are counted.
"""

from __future__ import annotations

import contextlib
import os
import stat

from dshpc_setup.jobs import safe_open
from dshpc_setup.jobs.workspace import OWN


class OwnWorkspace:
    """`folder` and `own`, its folder `.job`, are open."""

    def __init__(self, path: str, folder: int, own: int) -> None:
        self.path, self.folder, self.own = path, folder, own

    def is_still_there(self) -> bool:
        """Whether `.job` has its name: a submission that is taken back takes that away."""
        try:
            found = os.stat(OWN, dir_fd=self.folder, follow_symlinks=False)
        except OSError:
            return False
        return os.path.samestat(found, os.fstat(self.own))


def opened(path: str) -> OwnWorkspace:
    """This folder, as the workspace of one of our jobs; OSError where it is none.

    slurmstepd goes to /tmp where it cannot go to the workspace: anybody may write there.
    """
    folder = safe_open.folder(".")
    own = safe_open.folder(OWN, folder)
    with safe_open.opened("..", folder) as above:
        for handle, name in ((own, OWN), (folder, path), (above, "..")):
            safe_open.check_owner(os.fstat(handle), os.getuid(), folder, name)
    return OwnWorkspace(path, folder, own)


def keep_log_private(at: OwnWorkspace) -> None:
    """Slurm makes the log by the caller's umask: who may not enter the workspace may not read it."""
    with contextlib.suppress(OSError):
        found = os.fstat(1)
        if stat.S_ISREG(found.st_mode) and found.st_uid == os.getuid():
            os.fchmod(1, os.fstat(at.folder).st_mode & 0o040 | 0o600)


def make_folder(at: OwnWorkspace, name: str) -> None:
    """One in the workspace, with its permissions; it may be there, of a run before."""
    try:
        made = safe_open.new_folder(name, at.folder, os.fstat(at.folder).st_mode & 0o777)
        os.close(made)
    except FileExistsError:
        with safe_open.opened(name, at.folder) as there:
            safe_open.check_owner(os.fstat(there), os.getuid(), at.folder, name)


def size(at: OwnWorkspace, name: str) -> int:
    try:
        return os.stat(name, dir_fd=at.folder, follow_symlinks=False).st_size
    except OSError:
        return 0


def tail(at: OwnWorkspace, name: str, begin: int, most: int) -> str:
    """The end of a file, of what stands behind `begin`."""
    try:
        with open(safe_open.file(name, at.folder, os.getuid()), "rb") as file:
            file.seek(max(begin, os.fstat(file.fileno()).st_size - most))
            return file.read(most).decode("utf-8", "replace")
    except OSError:
        return ""
