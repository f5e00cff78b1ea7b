"""A workspace measured, and removed with all that is in it, by its own user and by no link.

What jobs leave may be deeper than a program may call itself, hold more than it may keep open, and have
folders that nobody may write in: nothing here goes down into a folder from the one above it. Folders in
folders are moved up to the workspace first, and it is the last to go with `.job` in it, so that what is
interrupted is still a workspace and can be removed by the next run.
"""

from __future__ import annotations

import contextlib
import os
import stat
import time

from dshpc_setup.jobs import safe_open
from dshpc_setup.jobs.workspace import OWN

_BLOCK = 512  # of st_blocks, on every system
_ALL_RIGHTS = 0o700
_ENTER = getattr(os, "O_PATH", 0)


def size(name: str, at: int, until: float) -> int | None:
    """Bytes on the disk, a file with several names counted once; None where not all could be seen, or
    not before `until` (monotonic seconds)."""
    total, seen = 0, set()
    unseen: list[OSError] = []
    try:
        for _, _, files, here in os.fwalk(name, dir_fd=at, onerror=unseen.append):
            for file in (*files, "."):
                with contextlib.suppress(FileNotFoundError):
                    found = os.stat(file, dir_fd=here, follow_symlinks=False)
                    known = (found.st_dev, found.st_ino)
                    total += 0 if known in seen else found.st_blocks * _BLOCK
                    if found.st_nlink > 1 and file != ".":
                        seen.add(known)
            if time.monotonic() > until:
                return None
    except (OSError, RecursionError):
        return None
    return None if unseen else total


def remove(name: str, at: int) -> None:
    """The workspace of that name in the open folder `at`; raises OSError where something of it stays."""
    here = _writable(name, at)
    try:
        folders = [each for each in _emptied(here, keep=OWN) if each != OWN]
        while folders:
            folders += _flattened(folders.pop(), here)
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            inner = _flattened(OWN, here)
            while inner:
                inner += _flattened(inner.pop(), here)
        for each in os.listdir(here):  # `.job` was no folder
            os.unlink(each, dir_fd=here)
    finally:
        os.close(here)
    os.rmdir(name, dir_fd=at)


def discard(name: str, at: int) -> None:
    """As `remove`, of what was never a job's: what cannot be removed stays."""
    with contextlib.suppress(OSError):
        remove(name, at)


def _flattened(name: str, top: int) -> list[str]:
    """Remove a folder of `top`; the folders that were in it are in `top` then, under these names."""
    here = _writable(name, top)
    moved = []
    try:
        for each in _emptied(here):
            new = f".removed-{os.urandom(8).hex()}"
            os.close(_writable(each, here))  # to move a folder is to write in it
            os.rename(each, new, src_dir_fd=here, dst_dir_fd=top)
            moved.append(new)
    finally:
        os.close(here)
    os.rmdir(name, dir_fd=top)
    return moved


def _emptied(here: int, keep: str = "") -> list[str]:
    """Remove all that is no folder, but `keep`: the names of the folders."""
    folders = []
    for name in os.listdir(here):
        if stat.S_ISDIR(os.stat(name, dir_fd=here, follow_symlinks=False).st_mode):
            folders.append(name)
        elif name != keep:
            os.unlink(name, dir_fd=here)
    return folders


def _writable(name: str, at: int) -> int:
    """A folder, open, in which its owner may remove; by no link."""
    try:
        here = safe_open.folder(name, at)
    except PermissionError:
        _let_in(name, at)
        here = safe_open.folder(name, at)
    mode = stat.S_IMODE(os.fstat(here).st_mode)
    if mode & _ALL_RIGHTS != _ALL_RIGHTS:
        with contextlib.suppress(OSError):  # another's; what follows says so
            os.fchmod(here, mode | _ALL_RIGHTS)
    return here


def _let_in(name: str, at: int) -> None:
    """The rights to a folder of our own that has none: what is open is changed, whatever has its name."""
    if not _ENTER:
        return
    place = os.open(name, _ENTER | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=at)
    try:
        os.chmod(f"/proc/self/fd/{place}", _ALL_RIGHTS)
    finally:
        os.close(place)
